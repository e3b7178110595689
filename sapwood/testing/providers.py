"""A fake model provider on a loopback port; needs the extra `testing`."""

from sapwood._public import publish as _publish
from sapwood.testing._fake_provider import FakeProvider as FakeProvider
from sapwood.testing._fake_provider import FakeRequest as FakeRequest
from sapwood.testing._fake_provider import open_fake_provider as open_fake_provider
from sapwood.testing._fake_wire import FakeAnswer as FakeAnswer
from sapwood.testing._fake_wire import FakeBody as FakeBody
from sapwood.testing._fake_wire import FakeFailure as FakeFailure
from sapwood.testing._fake_wire import FakeSilence as FakeSilence

_publish(globals())

"""The kernel."""

from sapwood.actors._environment import Environment as Environment
from sapwood.actors._environment import RealEnvironment as RealEnvironment
from sapwood.actors._environment import SimulatedEnvironment as SimulatedEnvironment
from sapwood.actors._wire import Upcaster as Upcaster
from sapwood.actors._wire import Wire as Wire
from sapwood.actors._wire import class_of as class_of
from sapwood.actors._wire import record as record
from sapwood.actors._wire import wire_of as wire_of

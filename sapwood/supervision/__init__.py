"""Supervision: trees of supervisors that start, restart and stop actors by OTP's rules."""

from sapwood._public import publish as _publish
from sapwood.supervision._backoff import Backoff as Backoff
from sapwood.supervision._children import ChildCounts as ChildCounts
from sapwood.supervision._children import ChildInfo as ChildInfo
from sapwood.supervision._children import Offender as Offender
from sapwood.supervision._dynamic import DynamicSupervisor as DynamicSupervisor
from sapwood.supervision._partitions import PartitionSupervisor as PartitionSupervisor
from sapwood.supervision._partitions import partition as partition
from sapwood.supervision._partitions import partition_count as partition_count
from sapwood.supervision._requests import SupervisorStatistics as SupervisorStatistics
from sapwood.supervision._requests import count_children as count_children
from sapwood.supervision._requests import delete_child as delete_child
from sapwood.supervision._requests import get_child_spec as get_child_spec
from sapwood.supervision._requests import restart_child as restart_child
from sapwood.supervision._requests import start_child as start_child
from sapwood.supervision._requests import supervisor_statistics as supervisor_statistics
from sapwood.supervision._requests import terminate_child as terminate_child
from sapwood.supervision._requests import which_children as which_children
from sapwood.supervision._spec import AutoShutdown as AutoShutdown
from sapwood.supervision._spec import ChildSpec as ChildSpec
from sapwood.supervision._spec import Restart as Restart
from sapwood.supervision._spec import Strategy as Strategy
from sapwood.supervision._spec import child as child
from sapwood.supervision._spec import supervisor as supervisor
from sapwood.supervision._stable_hash import stable_hash as stable_hash
from sapwood.supervision._supervisor import Supervisor as Supervisor
from sapwood.supervision._task_handle import Failed as Failed
from sapwood.supervision._task_handle import Outcome as Outcome
from sapwood.supervision._task_handle import Returned as Returned
from sapwood.supervision._task_handle import TaskHandle as TaskHandle
from sapwood.supervision._task_handle import results as results
from sapwood.supervision._task_stream import TaskStream as TaskStream
from sapwood.supervision._task_supervisor import Tasks as Tasks
from sapwood.supervision._task_supervisor import TaskSupervisor as TaskSupervisor
from sapwood.supervision._tree import TreeNode as TreeNode
from sapwood.supervision._tree import supervision_tree as supervision_tree

_publish(globals())

"""Which clips to annotate next, tasks a person can open, and their way back."""

from mast.planning.candidates import candidate_clips, heard_clips
from mast.planning.choose import PLAN_STRATEGIES, PlanStrategy, choose_clips
from mast.planning.returned import add_returned, is_tasks_folder, read_tasks
from mast.planning.tasks import TASK_FORMATS, TaskFormat, write_tasks

__all__ = [
    "PLAN_STRATEGIES",
    "TASK_FORMATS",
    "PlanStrategy",
    "TaskFormat",
    "add_returned",
    "candidate_clips",
    "choose_clips",
    "heard_clips",
    "is_tasks_folder",
    "read_tasks",
    "write_tasks",
]

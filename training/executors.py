"""Where units run: the executors of `core.executors`, under the name that training knows."""

from core.executors import Task, run_on_threads

__all__ = ["Task", "run_on_threads"]

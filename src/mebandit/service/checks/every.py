"""All checks of an experiment, in the order in which people read them."""

from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from mebandit.service.checks import context, deciding, learning, participants
from mebandit.service.checks.look import Look, Result
from mebandit.values import YELLOW

CHECKS: tuple[Callable[[Look], Result | list[Result]], ...] = (
    deciding.status,
    participants.due,
    deciding.fallbacks,
    deciding.staleness,
    deciding.ranges,
    deciding.latency,
    deciding.repeated,
    deciding.floor,
    deciding.randomisation,
    learning.waiting,
    learning.trainer,
    learning.version_age,
    participants.silent,
    context.drift,
    context.told_error,
    context.errors,
    context.effective_rounds,
)


def checked(look: Look) -> list[Result]:
    """What all checks find."""
    found: list[Result] = []
    for check in CHECKS:
        try:
            result = check(look)
        except SQLAlchemyError:
            raise
        except Exception as error:  # one check that fails must not hide the others
            words = f"The check could not be made ({type(error).__name__}: {error})."
            result = Result(check.__name__, YELLOW, None, None, words, "Report this as a defect of mebandit.")
        found += [result] if isinstance(result, Result) else result
    return found

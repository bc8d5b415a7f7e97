"""What is kept of distillation: who taught, and how much of it the student has."""

from __future__ import annotations

from pydantic import Field

from schemas.manifest import Document


class TeacherRef(Document):
    """One teacher: the exact address behind an alias, and a hash of its weights and tokenizer."""

    address: str
    digest: str

    def __str__(self) -> str:
        """As tags and cards name it."""
        return f"{self.address} ({self.digest[:12]})"


class Distilled(Document):
    """The teachers' macro-F1 together, mean over heads, beside the student's.

    `student` says which layers it was made of, null for all of `train.backbone`. Figures are
    on validation records, on which the student's best epoch was chosen, from pooled logits;
    `test_macro_f1` are the teachers' by head on test records. `unlabelled` and `augmented` count
    texts that the teachers alone answered.
    """

    teachers: tuple[TeacherRef, ...]
    student: str | None = None
    teacher_valid_macro_f1: float
    student_valid_macro_f1: float
    test_macro_f1: dict[str, float] = Field(default_factory=dict)
    unlabelled: int = 0
    augmented: int = 0

    @property
    def kept(self) -> float:
        """The student's share of the teachers' macro-F1 on validation; 0 where theirs is 0."""
        if not self.teacher_valid_macro_f1:
            return 0.0
        return self.student_valid_macro_f1 / self.teacher_valid_macro_f1

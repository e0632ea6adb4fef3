"""Entry of a probe: `python -m exporter.tools.doctor.child QUESTION.json ANSWER.json`.

In: the path of a question. Out: the answer, and exit code 0; whatever goes wrong is an answer too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.jobs.job_folder import write_json
from exporter.tools.doctor.protocol import Question


def main() -> int:
    """Answers the question that the command line names."""
    question = Question.model_validate_json(Path(sys.argv[1]).read_bytes())
    if question.device is None:
        from exporter.tools.doctor.child.packages import import_all

        answer = import_all()
    else:
        from exporter.tools.doctor.child.devices import run_on

        answer = run_on(question.device)
    write_json(Path(sys.argv[2]), answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())

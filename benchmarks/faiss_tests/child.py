"""Run FAISS's tests of one module in this process, and print a line of JSON before and after each.

    python child.py FOLDER MODULE ours|stock|unit [TEST ...]

The modules of FOLDER are FAISS's tests; TEST is the name of one that is to be run, by default all.
"""

import contextlib
import importlib
import json
import os
import sys
import traceback
import unittest
from collections.abc import Iterator
from typing import Any

import faiss
import stand_ins


class Recorder(unittest.TestResult):
    """Prints what came of each test."""

    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out, self.problem = out, ("ok", "", "")

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        stand_ins.made.clear()
        self.problem = ("ok", "", "")
        self.say(test=test.id(), state="started")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        state, message, trace = self.problem
        self.say(test=test.id(), state=state, message=message, trace=trace, made=sorted(stand_ins.made))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.note("error", err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.note("failure", err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.note("failure", err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.problem = ("skipped", reason, "")

    def note(self, state: str, err: Any) -> None:
        if self.problem[0] == "ok":  # of several, the first
            lines = "".join(traceback.format_exception_only(err[0], err[1])).strip()
            self.problem = (state, lines, "".join(traceback.format_exception(*err)))

    def say(self, **line: Any) -> None:
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()


def cases(suite: Any) -> Iterator[unittest.TestCase]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from cases(one)
        else:
            yield one


def main(folder: str, name: str, kind: str, wanted: set[str]) -> None:
    out = os.fdopen(os.dup(1), "w")  # whatever the tests print is not for whoever reads this
    os.dup2(2, 1)
    sys.path.insert(0, folder)
    tests = importlib.import_module(name)
    if kind != "stock":
        stand_in = stand_ins.module(kind)
        for one in list(sys.modules.values()):
            if os.path.dirname(getattr(one, "__file__", None) or "") == folder and getattr(one, "faiss", None) is faiss:
                one.faiss = stand_in  # type: ignore[attr-defined]
    found = list(cases(unittest.defaultTestLoader.loadTestsFromModule(tests)))
    with contextlib.redirect_stdout(sys.stderr):
        result = Recorder(out)
        for test in found:
            if not wanted or test.id() in wanted:
                test.run(result)
    result.say(test="", state="finished", tests=[test.id() for test in found])


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3], set(sys.argv[4:]))

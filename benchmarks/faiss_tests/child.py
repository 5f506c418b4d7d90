"""Run FAISS's tests of one module in this process, and print lines of JSON: the names of all tests, then a line before
and after each test, and for each stock class that the test replaces, so that nothing is lost if the process crashes.

    python child.py FOLDER MODULE KIND [TEST ...]

FOLDER holds FAISS's tests. KIND is "ours" (evidence indexes in place of some stock ones) or "stock". TEST is the name
of a test to run, by default all.
"""

import contextlib
import importlib
import inspect
import json
import os
import re
import sys
import traceback
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import stand_ins

REACHES = re.compile(
    r"INNER_PRODUCT|METRIC_L2|Index(Flat|IVFFlat|IVFScalar|IDMap)|index_factory|faiss_metric"
)
CONSTANT = re.compile(r"^(\w+) = (.*)$", re.MULTILINE)
LEVELS = re.compile(r"_(NONE|AVX2|AVX512|AVX512_SPR|ARM_NEON|ARM_SVE|RISCV_RVV)(?=\.)")
"""Suffix that FAISS appends to the name of a test class for each instruction set."""


class Recorder(unittest.TestResult):
    """Prints the outcome of each test."""

    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out, self.problem = out, ("ok", "", "")

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().startTest(test)
        stand_ins.made.clear()
        self.problem = ("ok", "", "")
        self.say(test=test.id(), state="started")
        stand_ins.made.report = lambda name: self.say(test=test.id(), state="made", made=name)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().stopTest(test)
        state, message, trace = self.problem
        self.say(
            test=test.id(), state=state, message=message, trace=trace, made=sorted(stand_ins.made)
        )

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self.note("error", err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self.note("failure", err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
        if err is not None:
            self.note("failure", err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
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


def can_reach(test: unittest.TestCase) -> bool:
    """Return whether a test, its class, or the functions and constants that it uses, can create such an index."""
    module, method = sys.modules[type(test).__module__], test.id().rpartition(".")[2]
    sources = [_without_other_tests(cls, method) for cls in type(test).__mro__]
    beside = {
        name: inspect.getsource(one)
        for name, one in vars(module).items()
        if inspect.isfunction(one)
    }
    beside |= dict(CONSTANT.findall(inspect.getsource(module)))
    named = [
        text
        for name, text in beside.items()
        if any(re.search(rf"\b{name}\b", source) for source in sources)
    ]
    return any(REACHES.search(text) for text in (*sources, *named))


def _without_other_tests(cls: type, method: str) -> str:
    """Return the source of a test class without its other tests; "" if it is not a test class."""
    if not issubclass(cls, unittest.TestCase) or cls is unittest.TestCase:
        return ""
    functions = {
        name: inspect.getsource(one) for name, one in vars(cls).items() if inspect.isfunction(one)
    }
    try:
        source = inspect.getsource(cls)
    except OSError:  # a generated class for an instruction set
        return "".join(
            text
            for name, text in functions.items()
            if name == method or not name.startswith("test")
        )
    for name, text in functions.items():
        if name.startswith("test") and name != method:
            source = source.replace(text, "")
    return source


def at_one_level(tests: list[unittest.TestCase]) -> list[unittest.TestCase]:
    """Return the tests without their repetitions for other instruction sets."""
    first = {LEVELS.sub("", test.id()): test for test in reversed(tests)}
    return [test for test in tests if first[LEVELS.sub("", test.id())] is test]


def main(folder: str, name: str, kind: str, wanted: set[str]) -> None:
    out = os.fdopen(os.dup(1), "w")  # output of the tests goes to standard error
    os.dup2(2, 1)
    sys.path.insert(0, folder)
    tests = importlib.import_module(name)
    modules = [
        one
        for one in list(sys.modules.values())
        if Path(getattr(one, "__file__", None) or "/").parent == Path(folder)
    ]
    if kind != "stock":
        stand_in = stand_ins.module()
        for one in modules:
            if getattr(one, "faiss", None) is faiss:
                one.faiss = stand_in
    every = at_one_level(list(cases(unittest.defaultTestLoader.loadTestsFromModule(tests))))
    found = [test for test in every if can_reach(test)]
    with contextlib.redirect_stdout(sys.stderr):
        result = Recorder(out)
        result.say(test="", state="found", tests=[test.id() for test in found])
        for test in found:
            if not wanted or test.id() in wanted:
                test.run(result)
    result.say(test="", state="finished")


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()), *sys.argv[2:4], set(sys.argv[4:]))

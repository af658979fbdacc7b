"""Change one symbol at a time in the formulas and demand that a test fails: `make mutate`.

    python tests/mutate.py [--only losses/relation.py]

Without --only the formulas are tried. With --only strategies or a file of them, only what trains is
changed, and a mutant is first held to the trajectory of its authors (tests/golden), then to the
other tests of the method; --every 6 tries a sixth.

Each mutant is a fork of a process that has collected the tests: the changed function takes the
place of the one imported, and the tests that cover it run until one fails. A mutant that no test
notices is a survivor. `mutants.toml` lists those that change nothing a user could see, with the
reason; any other survivor, and any entry without a mutant, is an error.
"""

import argparse
import gc
import inspect
import json
import os
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "avalanche_hfc"
EQUIVALENT = Path(__file__).with_name("mutants.toml")
HFC_LOSSES = {"losses/compensation.py", "losses/relation.py", "losses/official.py"}
COVERED_BY = {  # the tests a group of files is held to
    "losses": ["tests/losses/test_loss_*.py"],
    "losses of methods": ["tests/losses/test_method_*.py"],
    "shared by losses": ["tests/losses/test_*.py"],
    "memory": ["tests/memory"],
    "metrics": ["tests/metrics"],
}
FORMULA_LAYERS = ("losses", "memory", "metrics")  # what is tried without --only
FOLLOWED = {  # the recordings that a file of the strategies is held to
    "hfc.py": ["hfc_official", "hfc_paper"],
    "official.py": ["hfc_official"],
    "dytox.py": ["dytox"],
    "icarl.py": ["icarl"],
    "bic.py": ["bic"],
    "podnet.py": ["podnet_released"],
    "podnet_cscct.py": ["podnet_cscct"],
    "afc.py": ["afc_released"],
    "foster.py": ["foster"],
    "ssil.py": ["ssil"],
    "_base/proxies.py": ["podnet_released"],
    "_base/tuning.py": ["podnet_released"],
    "_base/phases.py": ["podnet_released", "foster"],
}
TRAJECTORY = "tests/golden/test_trajectories.py::test_a_trajectory_of_the_authors_is_followed[{}]"
OTHER_TESTS = [  # of these, the ones of the method
    "tests/strategies/test_*.py",
    "tests/lab/test_phase_rates.py",
    "tests/contracts/test_contracts_*.py",
]
# constructor, state and checks of options train nothing
UNTRAINED = {"__init__", "method_state", "load_method_state", "state_dict", "load", "<module>"}
PROCESSES = 2
PYTEST = ["-xq", "-p", "no:cacheprovider", "--tb=no", "--no-header"]
PYTEST += ["-k", "not compiled"]  # tests in processes of their own would read the file on disk
LEAST_SECONDS, TIMES_BASELINE = 30, 4  # a mutant that takes longer hangs, and counts as noticed

sys.path[:0] = [
    str(Path(__file__).parent),
    str(ROOT),
]  # the package of this folder, wherever another one is installed
from mutations import Mutation, mutations  # noqa: E402

TERMINAL = os.dup(1)  # pytest captures the usual one


def say(text: str) -> None:
    os.write(TERMINAL, (text + "\n").encode())


def sources(only: str | None) -> list[Path]:
    found = [
        p
        for layer in FORMULA_LAYERS
        for p in sorted((PACKAGE / layer).glob("*.py"))
        if p.name != "__init__.py"
    ] + [PACKAGE / "strategies" / name for name in FOLLOWED]
    chosen = [p for p in found if str(p.relative_to(PACKAGE)).startswith(only or FORMULA_LAYERS)]
    if not chosen:
        raise SystemExit(
            f"No file {only!r}. There are: {', '.join(str(p.relative_to(PACKAGE)) for p in found)}."
        )
    return chosen


def apply(job: Mutation) -> None:
    """Give the functions of the imported module the changed code: every name that refers to one
    sees it, wherever it was imported.
    """
    live = sys.modules["avalanche_hfc." + job.file.removesuffix(".py").replace("/", ".")]
    if job.function.endswith("<class>"):
        changed = {}
        exec(compile(job.statement, job.file, "exec"), vars(live), changed)
        for name, value in changed.items():
            setattr(getattr(live, job.function.split(".")[0]), name, value)
        return
    if job.function == "<module>":
        before = dict(vars(live))
        exec(compile(job.statement, job.file, "exec"), vars(live))
        for name, value in before.items():
            if isinstance(value, dict) and (new := vars(live)[name]) is not value:
                new = dict(new)
                value.clear()
                value.update(new)
                setattr(live, name, value)
        return
    changed = {"__name__": live.__name__}
    exec(compile(job.source, str(PACKAGE / job.file), "exec"), changed)
    old, new = (
        _function(namespace, job.function.split(".")) for namespace in (vars(live), changed)
    )
    old.__code__ = new.__code__.replace(co_freevars=old.__code__.co_freevars)
    old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__


def _function(namespace, names: list[str]):
    """The function itself, below every decorator."""
    found = namespace[names[0]]
    for name in names[1:]:
        found = vars(found)[name]
    found = getattr(found, "fget", None) or getattr(found, "__func__", found)
    return inspect.unwrap(found)


class Mutate:
    """A pytest plugin in place of the test loop: collect once, then a fork for each mutant, which
    runs tests until one fails.

    Tests that noticed most mutants so far come first, then the quickest. No process that forks has
    run a test.
    """

    def __init__(self, jobs: list[Mutation], folder: Path):
        self.jobs, self.folder = jobs, folder
        self.seconds, self.noticed, self.survived = {}, Counter(), []

    def pytest_sessionstart(self):
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutate",
            parent=settings.default,
            phases=[Phase.explicit, Phase.generate],
            database=None,
        )
        settings.load_profile("mutate")

    def pytest_runtestloop(self, session):
        if session.testsfailed or not session.items:
            say("The tests cannot be collected.")
            os._exit(2)
        gc.freeze()
        self.items = session.items
        code = os.waitstatus_to_exitcode(os.waitpid(pid := self.fork(None), 0)[1])
        report = json.loads((self.folder / f"{pid}.json").read_text())
        if code:
            say(f"{report['failed']} fails before anything is changed.")
            os._exit(2)
        self.seconds = report["seconds"]
        self.limit = LEAST_SECONDS + TIMES_BASELINE * sum(self.seconds.values())
        self.run_all()
        (self.folder / "survived.json").write_text(json.dumps(self.survived))
        return True

    def fork(self, job: Mutation | None) -> int:
        """Start a process that runs the tests on the mutant. Its exit code is 0 if all pass."""
        pid = os.fork()
        if pid:
            return pid
        code, report = 1, {"seconds": {}, "failed": None}
        try:
            os.setsid()
            if job is not None:
                apply(job)
            code = self.run_tests(report)
        finally:
            (self.folder / f"{os.getpid()}.json").write_text(json.dumps(report))
            os._exit(code)

    def run_tests(self, report: dict) -> int:
        from _pytest.runner import runtestprotocol

        items = sorted(
            self.items,
            key=lambda item: (-self.noticed[item.nodeid], self.seconds.get(item.nodeid, 0.0)),
        )
        for item, following in zip(items, [*items[1:], None], strict=True):
            phases = runtestprotocol(item, log=False, nextitem=following)
            report["seconds"][item.nodeid] = sum(phase.duration for phase in phases)
            if any(phase.failed for phase in phases):
                report["failed"] = item.nodeid
                return 1
        return 0

    def run_all(self) -> None:
        waiting, running = list(reversed(range(len(self.jobs)))), {}
        while waiting or running:
            while waiting and len(running) < PROCESSES:
                number = waiting.pop()
                running[self.fork(self.jobs[number])] = (number, time.monotonic() + self.limit)
            for pid, (number, deadline) in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended and time.monotonic() > deadline:
                    os.killpg(pid, signal.SIGKILL)
                    _, status = os.waitpid(pid, 0)
                elif not ended:
                    continue
                del running[pid]
                self.judge(number, pid, os.waitstatus_to_exitcode(status))
            time.sleep(0.005)

    def judge(self, number: int, pid: int, code: int) -> None:
        report, job = self.folder / f"{pid}.json", self.jobs[number]
        if report.exists() and (failed := json.loads(report.read_text())["failed"]):
            self.noticed[failed] += 1
        if code == 0:
            self.survived.append(number)
            say(
                f"survived  {job.file}:{job.line} in {job.function}\n    - {job.before}\n    "
                f"+ {job.after}"
            )


def survivors(jobs: list[Mutation], group: str) -> list[Mutation]:
    """The mutants of formulas that no test notices."""
    tests = [str(path) for pattern in COVERED_BY[group] for path in sorted(ROOT.glob(pattern))]
    return unnoticed(jobs, group, tests)


def off_course(jobs: list[Mutation], group: str) -> list[Mutation]:
    """The mutants of a strategy that neither its trajectory nor another test of the methods
    notices.
    """
    unseen = unnoticed(jobs, group, [TRAJECTORY.format(name) for name in FOLLOWED[group]])
    say(f"{group}: {len(jobs) - len(unseen)} of {len(jobs)} leave the trajectory; the others:")
    tests = [str(path) for pattern in OTHER_TESTS for path in sorted(ROOT.glob(pattern))]
    name = group.removesuffix(".py").removeprefix("podnet_")
    chosen = [] if "/" in name else ["-k", f"{name} and not compiled"]
    return unnoticed(unseen, group, [*chosen, *tests]) if unseen else []


def unnoticed(jobs: list[Mutation], group: str, tests: list[str]) -> list[Mutation]:
    """The mutants that none of these tests notices. In a process of its own: the package is
    imported there under pytest's hook.
    """
    with tempfile.TemporaryDirectory() as reports:
        pid = os.fork()
        if not pid:
            try:
                import pytest

                silent = os.open(os.devnull, os.O_RDWR)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                pytest.main([*PYTEST, *tests], plugins=[Mutate(jobs, Path(reports))])
            finally:
                os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        found = Path(reports) / "survived.json"
        if code or not found.exists():
            raise SystemExit(f"{group}: the tests did not run.")
        return [jobs[number] for number in json.loads(found.read_text())]


def group_of(job: Mutation) -> str:
    layer, name = job.file.split("/", 1)
    if layer == "strategies":
        return name
    if layer != "losses" or job.file in HFC_LOSSES:
        return layer
    return "shared by losses" if name.startswith("_") else "losses of methods"


def key(job: Mutation) -> tuple[str, str, str]:
    return job.file, job.function, job.after


def listed(files: set[str]) -> dict[tuple[str, str, str], str]:
    """Equivalent mutants of these files: (file, function, changed line) -> reason."""
    entries = tomllib.loads(EQUIVALENT.read_text())["equivalent"] if EQUIVALENT.exists() else []
    if bare := [entry for entry in entries if not entry.get("reason")]:
        raise SystemExit(f"{EQUIVALENT.name}: an entry has no reason: {bare[0]}")
    return {
        (e["file"], e["function"], e["line"]): e["reason"] for e in entries if e["file"] in files
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="a file or layer of the package: losses/relation.py, losses")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="of a strategy, try every Nth mutant only"
    )
    options = parser.parse_args()
    os.chdir(ROOT)
    paths = [path.relative_to(PACKAGE).as_posix() for path in sources(options.only)]
    jobs = [
        job
        for path in paths
        for job in mutations(path, (PACKAGE / path).read_bytes())
        if group_of(job) not in FOLLOWED or job.function.split(".")[-1] not in UNTRAINED
    ]
    reasons = listed(set(paths))
    stale = sorted(reasons.keys() - {key(job) for job in jobs})
    survived = []
    for group in (*COVERED_BY, *FOLLOWED):
        mine = [job for job in jobs if group_of(job) == group and key(job) not in reasons]
        if group in COVERED_BY and mine:
            survived += survivors(mine, group)
        elif mine:
            survived += off_course(mine[:: options.every], group)
    for entry in stale:
        say(f"{EQUIVALENT.name}: no such mutant: {entry}")
    say(f"{len(jobs)} mutants, {len(reasons)} of them equivalent; {len(survived)} survived")
    return 1 if survived or stale else 0


if __name__ == "__main__":
    sys.exit(main())

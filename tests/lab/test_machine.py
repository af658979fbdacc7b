"""The processor in words."""

import subprocess

import pytest

from avalanche_hfc.lab import machine

INTEL = (
    "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Big CPU\nflags\t\t: sse "
    "avx2{more}\n\nmodel name\t: Second\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (INTEL.format(more=""), "Big CPU, family 6, model 85, AVX2"),
        (INTEL.format(more=" avx512f avx512bw"), "Big CPU, family 6, model 85, AVX-512"),
        ("processor\t: 0\nFeatures\t: fp asimd\n", "Word of the system, NEON"),
        (None, "Word of the system"),
    ],
)
def test_name_generation_and_widest_instructions_of_the_first_processor(
    text, said, tmp_path, monkeypatch
):
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "Word of the system")
    for name in machine.LIMITS:
        monkeypatch.delenv(name, raising=False)
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert machine.cpu() == said


def test_limits_on_the_instructions_are_told(monkeypatch):
    for name in machine.LIMITS:
        monkeypatch.delenv(name, raising=False)
    told = machine.cpu()
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    assert machine.cpu() == f"{told}, ATEN_CPU_CAPABILITY=avx2"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert machine.cpu() == f"{told}, ATEN_CPU_CAPABILITY=avx2, ONEDNN_MAX_CPU_ISA=AVX2"


@pytest.mark.parametrize(
    ("device", "cores", "ranks", "expected"),
    [("cpu", 16, "1", 0), ("cuda", 4, "1", 4), ("cuda:1", 16, "4", 4), ("cuda", 64, None, 8)],
)
def test_loader_processes_follow_from_the_device_and_the_ranks_of_a_machine(
    device, cores, ranks, expected, monkeypatch
):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if ranks is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert machine.default_workers(device) == expected


def test_the_commit_is_told_of_a_checkout_and_whether_files_were_changed(tmp_path, monkeypatch):
    def git(*words):
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        done = subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    monkeypatch.setattr(machine, "CHECKOUT", tmp_path)
    assert machine.commit() == {}  # installed from a wheel
    git("init")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "first")
    git("tag", "v1")
    head = git("rev-parse", "HEAD")
    assert machine.commit() == {"commit": head}
    (tmp_path / "file").write_text("2")
    assert machine.commit() == {"commit": f"{head}-dirty"}

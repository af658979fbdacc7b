"""Output that is closed or full while a run trains: no reason to stop."""

import subprocess
import sys

import pytest

RUN = "run digits-b0-t5-finetune@demo --epochs 1 --batch-size 256 --device cpu"
PIPES = {
    "closed": "{hfc} 2>&-",
    "full": "{hfc} 2>/dev/full",
    "first line": "{hfc} 2>&1 | head -n 1",
}


@pytest.mark.parametrize("pipe", PIPES)
def test_a_run_whose_output_ends_is_trained_to_its_end(tmp_path, pipe):
    hfc = f"{sys.executable} -m avalanche_hfc {RUN} --out {tmp_path}"
    subprocess.run(PIPES[pipe].format(hfc=hfc), shell=True, capture_output=True, check=False)
    steps = tmp_path / "digits-b0-t5-finetune@demo" / "0" / "steps.csv"
    assert steps.read_text().count("\n") == 1 + 5

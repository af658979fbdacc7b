"""The command as a shell sees it, in this process."""

import sys

import pytest

from avalanche_hfc.lab.cli import main


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    """`hfc` in an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    # it would last as long as the process
    monkeypatch.setattr("avalanche_hfc.lab.cli.options.silence_host", lambda: None)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["hfc", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return call

"""Every public name has a docstring that a stranger can use."""

import importlib
import inspect
import pkgutil

import pytest

import avalanche_hfc

PACKAGES = [
    module.name for module in pkgutil.iter_modules(avalanche_hfc.__path__) if module.name[0] != "_"
]
WITH_EXAMPLES = {"losses", "memory", "metrics", "models", "plugins"}


def problems(value, example):
    doc = inspect.getdoc(value) or ""
    if not doc.partition("\n\n")[0].endswith("."):
        yield "no summary that ends with a period"
    maker = value.__init__ if inspect.isclass(value) else value
    if getattr(maker, "__module__", value.__module__).startswith(
        "avalanche_hfc"
    ):  # the host documents its constructors
        arguments = inspect.signature(value).parameters
        yield from (f"nothing on {name}" for name in arguments if f"{name}: " not in doc)
    if example and ">>> " not in doc:
        yield "no example"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_documented(package):
    module = importlib.import_module(f"avalanche_hfc.{package}")
    exported = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    assert {
        name: found
        for name, value in exported.items()
        if inspect.isfunction(value) or inspect.isclass(value)
        if (found := list(problems(value, package in WITH_EXAMPLES)))
    } == {}

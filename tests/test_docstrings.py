"""Every public name has a docstring that a stranger can use."""

import importlib
import inspect
import pkgutil
import re

import avalanche_hfc

PACKAGES = [
    module.name for module in pkgutil.iter_modules(avalanche_hfc.__path__) if module.name[0] != "_"
]
WITH_EXAMPLES = {"losses", "memory", "metrics", "models", "plugins"}
SECTIONS = "Args|Returns|Raises|Yields|Attributes|Shape|Example"


def exported(package):
    """The functions and classes in `__all__`: what is written for others to use."""
    module = importlib.import_module(f"avalanche_hfc.{package}")
    names = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    return {
        f"{package}.{name}": value
        for name, value in names.items()
        if inspect.isfunction(value) or inspect.isclass(value)
    }


def public_methods(cls):
    """Methods and properties written in this package, unless the host declares them: it documents
    its callbacks.
    """
    for name in dir(cls):
        owners = [base for base in cls.__mro__ if name in vars(base)]
        if name[0] != "_" and all(base.__module__.startswith("avalanche_hfc") for base in owners):
            member = inspect.getattr_static(cls, name)
            if isinstance(member, property) or callable(getattr(cls, name)):
                yield name, member if isinstance(member, property) else getattr(cls, name)


def section(doc, title):
    match = re.search(rf"^{title}:\n((?:    .*\n|\n)*)", doc + "\n", flags=re.MULTILINE)
    return match[1] if match else ""


def entries(doc, title):
    """Names under a section, such as the arguments under Args."""
    return set(re.findall(r"^    \*{0,2}(\w+): \S", section(doc, title), flags=re.MULTILINE))


def parameters(value):
    """The names a caller may pass; those of a constructor are documented by its class."""
    if inspect.isclass(value):
        maker = getattr(value.__init__, "__module__", value.__module__)
        if not maker.startswith("avalanche_hfc"):
            return []  # the host documents its constructor
    return [name for name in inspect.signature(value).parameters if name not in ("self", "cls")]


def returns_something(value):
    annotation = inspect.signature(value).return_annotation
    is_context = inspect.isgeneratorfunction(inspect.unwrap(value))
    return not is_context and annotation not in (None, "None", inspect.Signature.empty)


def problems(value, example):
    doc = inspect.getdoc(value) or ""
    if not re.match(r"[^\n]+\.(\n\n|$)", doc):
        yield "no summary line that ends with a period"
    if unknown := set(re.findall(r"^(\w+):$", doc, flags=re.MULTILINE)) - set(SECTIONS.split("|")):
        yield f"unknown sections {sorted(unknown)}"
    if not isinstance(value, property):
        title = "Attributes" if inspect.isclass(value) and "Attributes:\n" in doc else "Args"
        documented, wanted = entries(doc, title), parameters(value)
        if missing := [name for name in wanted if name not in documented]:
            yield f"{title} lacks {', '.join(missing)}"
        if stale := sorted(documented - set(wanted)):
            yield f"{title} names {', '.join(stale)}, which is no parameter"
        if not inspect.isclass(value) and returns_something(value) and not section(doc, "Returns"):
            yield "no Returns"
    if example and ">>> " not in section(doc, "Example"):
        yield "no example"


def all_problems(package):
    for name, value in exported(package).items():
        for problem in problems(value, example=package in WITH_EXAMPLES):
            yield f"{name}: {problem}"
        for method, member in public_methods(value) if inspect.isclass(value) else ():
            for problem in problems(member, example=False):
                yield f"{name}.{method}: {problem}"


def test_every_public_name_is_documented():
    assert [problem for package in PACKAGES for problem in all_problems(package)] == []

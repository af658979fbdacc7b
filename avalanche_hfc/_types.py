"""Types that several layers share. No torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

State = dict[str, Any]  # what `state_dict` gives: tensors and plain data
Options = dict[str, Any]  # keyword arguments of a class or function, by name
Record = Mapping[str, Any]  # a JSON object or a row of a CSV file, to be read
Json = dict[str, Any]  # an object as `json` reads and writes it

# Objects of the host. At run time any object with the members that are used will do, as it does for
# the host itself: there are strategies and data sets of its own that share no base class.
if TYPE_CHECKING:
    from avalanche.benchmarks import CLExperience as Experience
    from avalanche.benchmarks.utils import AvalancheDataset as HostDataset
    from avalanche.training.templates import SupervisedTemplate as Strategy
else:
    Experience = HostDataset = Strategy = Any

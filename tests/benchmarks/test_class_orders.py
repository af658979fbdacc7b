"""Class orders and synset lists against checksums of the published lists."""

from hashlib import sha256

import pytest

from avalanche_hfc.benchmarks import CLASS_ORDERS, class_order
from avalanche_hfc.benchmarks.orders import imagenet100_synsets, imagenet_synsets

PUBLISHED = {  # first ten, sha256 of the ids joined by commas
    "cifar100-a": (
        "87 0 52 58 44 91 68 97 51 15",
        "62e36f48cf4f51c7f8af22782b6e82a508419bb57eb217ce0c365060eff49b5a",
    ),
    "cifar100-b": (
        "58 30 93 69 21 77 3 78 12 71",
        "920202d4b4eafb271478568715c5e3ad3bfdfdc3fa9d01c950ecf9c45c3391cc",
    ),
    "cifar100-c": (
        "71 54 45 32 4 8 48 66 1 91",
        "208ddd64ac86acb0aad7d651c78b254b6b1ba836fc267cb877532b120cb2e593",
    ),
    "seed1993-100": (
        "68 56 78 8 23 84 90 65 74 76",
        "997a048a5344d216db0a03489cfdfd9b82e9353c7e9494f77f8d8bca56121c7e",
    ),
    "imagenet100": (
        "68 56 78 8 23 84 90 65 74 76",
        "997a048a5344d216db0a03489cfdfd9b82e9353c7e9494f77f8d8bca56121c7e",
    ),
    "imagenet1000": (
        "54 7 894 512 126 337 988 11 284 493",
        "305571fb8fde3e0ff2de05aeaa7361c205aacbaa84a0a01e3c1167ce2b7218e4",
    ),
    "ssil1000": (
        "524 29 247 551 629 193 465 580 137 991",
        "bb5d162dfc01e655c4b42f6cff45e49355b4aac2045b732755878007a890be85",
    ),
}
SYNSETS = {
    imagenet_synsets: (1000, "858fd8cc1983d57f3a05012a7aacf30415a430b1efb5bd17284bb3282160c0d5"),
    imagenet100_synsets: (100, "46391eba563f110fcb98745844f6fecd54f344ae315ce79103c548abbeffd061"),
}


def checksum(items) -> str:
    return sha256(",".join(str(item) for item in items).encode()).hexdigest()


def test_every_order_has_a_published_checksum():
    assert list(CLASS_ORDERS) == list(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_class_order_is_the_published_one(name):
    first_ten, published = PUBLISHED[name]
    order = class_order(name)
    assert " ".join(str(class_id) for class_id in order[:10]) == first_ten
    assert checksum(order) == published
    assert all(type(class_id) is int for class_id in order)


@pytest.mark.parametrize("synsets", SYNSETS, ids=lambda function: function.__name__)
def test_a_synset_list_is_the_published_one(synsets):
    count, published = SYNSETS[synsets]
    assert len(synsets()) == count
    assert checksum(synsets()) == published


def test_an_unknown_order_is_answered_with_all_names_and_the_nearest():
    with pytest.raises(ValueError) as error:
        class_order("cifar100a")
    assert str(error.value) == (
        "Unknown class order 'cifar100a'. Known: cifar100-a, cifar100-b, cifar100-c, seed1993-100, imagenet100, imagenet1000, ssil1000."
        " Did you mean 'cifar100-a'?"
    )

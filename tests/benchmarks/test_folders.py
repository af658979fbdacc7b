"""Benchmarks from folders of images, own ones and ImageNet: what is read, as which class, and what
is refused.
"""

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from avalanche_hfc.benchmarks import (
    class_order,
    split_folder,
    split_imagenet100,
    split_imagenet1000,
)
from avalanche_hfc.benchmarks.orders import imagenet100_synsets, imagenet_synsets


def picture(path, seed: int, size=(6, 6), mode: str = "RGB") -> np.ndarray:
    """Writes a small picture and gives its RGB pixels (h, w, 3)."""
    channels = {"RGB": 3, "L": 1, "RGBA": 4}[mode]
    pixels = np.random.RandomState(seed).randint(
        0, 256, (size[1], size[0], channels), dtype=np.uint8
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels.squeeze(), mode)
    image.save(path)
    return np.asarray(image.convert("RGB"))


@pytest.fixture
def two_parts(tmp_path):
    """Classes ant, bee, cow, dog with two training images and a test image each; the pixels by
    (part, class, name).
    """
    pixels = {}
    for seed, (part, name, number) in enumerate(
        (p, c, n) for p in ("train", "test") for c in ("dog", "ant", "cow", "bee") for n in (0, 1)
    ):
        if part == "train" or number == 0:
            pixels[part, name, number] = picture(tmp_path / part / name / f"{number}.png", seed)
    return tmp_path, pixels


def images_of(stream, class_id: int) -> torch.Tensor:
    data = next(one for one in stream if class_id in one.classes_in_this_experience).dataset.eval()
    return torch.stack([data[i][0] for i, label in enumerate(data.targets) if label == class_id])


def scaled(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(pixels)).permute(2, 0, 1) / 255 * 2 - 1


def one_file_a_class(folder, names) -> None:
    black = BytesIO()
    Image.new("RGB", (4, 4), (0, 0, 0)).save(black, "JPEG")
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / f"{name}_1.JPEG").write_bytes(black.getvalue())


def test_sorted_class_names_are_the_class_ids(two_parts):
    root, pixels = two_parts
    benchmark = split_folder(root, num_steps=2, class_order=[3, 0, 1, 2], image_size=6)
    assert benchmark.class_names == ("ant", "bee", "cow", "dog")
    assert [set(one.classes_in_this_experience) for one in benchmark.train_stream] == [
        {3, 0},
        {1, 2},
    ]
    for class_id, name in enumerate(benchmark.class_names):
        train = torch.stack([scaled(pixels["train", name, number]) for number in (0, 1)])
        torch.testing.assert_close(images_of(benchmark.train_stream, class_id), train)
        torch.testing.assert_close(
            images_of(benchmark.test_stream, class_id), scaled(pixels["test", name, 0])[None]
        )


def test_class_folders_alone_are_divided_by_sorted_name(tmp_path):
    pixels = {
        (name, i): picture(tmp_path / name / f"{i:02}.png", i + 20 * (name == "bee"))
        for name in ("ant", "bee")
        for i in range(8)
    }
    for seed in (0, 1):  # the seed draws class orders, never images
        benchmark = split_folder(tmp_path, num_steps=2, image_size=6, seed=seed)
        for class_id, name in enumerate(("ant", "bee")):
            test = torch.stack([scaled(pixels[name, i]) for i in (1, 6)])
            train = torch.stack([scaled(pixels[name, i]) for i in (0, 2, 3, 4, 5, 7)])
            torch.testing.assert_close(images_of(benchmark.test_stream, class_id), test)
            torch.testing.assert_close(images_of(benchmark.train_stream, class_id), train)


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_grey_transparent_and_odd_sized_images_become_rgb_squares(two_parts, mode):
    root, _ = two_parts
    pixels = picture(root / "test" / "ant" / "0.png", 77, size=(9, 5), mode=mode)
    image = images_of(split_folder(root, num_steps=2, image_size=5).test_stream, 0)[0]
    assert image.shape == (3, 5, 5)
    as_is = images_of(split_folder(root, num_steps=2, image_size=9).test_stream, 0)[0]
    assert as_is.shape == (3, 9, 9)
    enlarged = torch.nn.functional.interpolate(
        scaled(pixels)[None], (9, 9), mode="bilinear", antialias=True
    )[0]
    torch.testing.assert_close(as_is, enlarged, atol=1e-5, rtol=0)


def test_the_cameras_orientation_is_obeyed(two_parts):
    root, _ = two_parts
    exif = Image.Exif()
    exif[0x0112] = 6  # hold the picture a quarter turn clockwise
    pixels = np.random.RandomState(5).randint(0, 256, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(root / "test" / "ant" / "0.png", exif=exif)
    image = images_of(split_folder(root, num_steps=2, image_size=6).test_stream, 0)[0]
    torch.testing.assert_close(image, scaled(np.rot90(pixels, -1)))


def test_images_deeper_in_a_class_folder_count_and_hidden_files_do_not(two_parts):
    root, _ = two_parts
    pixels = picture(root / "train" / "ant" / "more" / "2.png", 50)
    for hidden in (".DS_Store", "ant/.thumbnail", "bee/.cache/notes.txt"):
        (root / "train" / hidden).parent.mkdir(exist_ok=True)
        (root / "train" / hidden).write_bytes(b"no image")
    benchmark = split_folder(root, num_steps=2, image_size=6)
    assert sum(len(one.dataset) for one in benchmark.train_stream) == 9
    torch.testing.assert_close(images_of(benchmark.train_stream, 0)[2], scaled(pixels))


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda root: (root / "train" / "ant" / "notes.txt").write_text("x"),
            "not an image by its name: train/ant/notes.txt. .*--skip-bad",
        ),
        (
            lambda root: (root / "train" / "labels.csv").write_text("x"),
            "a file beside the class folders: train/labels.csv",
        ),
        (lambda root: (root / "train" / "emu").mkdir(), "a class without an image: train/emu"),
        (
            lambda root: picture(root / "train" / "emu" / "0.png", 0),
            "a class that test/ lacks: train/emu",
        ),
        (
            lambda root: picture(root / "test" / "emu" / "0.png", 0),
            "a class that train/ lacks: test/emu",
        ),
        (
            lambda root: (root / "val").mkdir(),
            "one of test/ and val/ is needed beside train/, there is both",
        ),
        (
            lambda root: (root / "test").rename(root / "other"),
            "one of test/ and val/ is needed beside train/, there is neither",
        ),
        (lambda root: (root / "train").rename(root / ".train"), "test/ without train/"),
        (
            lambda root: (root / "train" / "ant" / "0.png").write_bytes(b"no image"),
            r"cannot be read: train/ant/0.png \(not an image in a known format\)",
        ),
        (
            lambda root: (root / "test" / "dog" / "0.png").write_bytes(b""),
            "an empty file: test/dog/0.png",
        ),
    ],
)
def test_a_folder_with_a_fault_is_refused_by_name(two_parts, change, message):
    root, _ = two_parts
    change(root)
    with pytest.raises(ValueError, match=message):
        split_folder(root, num_steps=2)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp"])
@pytest.mark.parametrize("kept", [0.3, 0.7])
def test_a_picture_cut_short_is_found_before_training(two_parts, suffix, kept):
    root, _ = two_parts
    path = root / "train" / "cow" / f"9{suffix}"
    picture(path, 0, size=(60, 60))
    assert split_folder(root, num_steps=2).class_names[2] == "cow"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    with pytest.raises(ValueError, match=f"cannot be read: train/cow/9{suffix}"):
        split_folder(root, num_steps=2)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"No folder .*none. Expected are train/<class>/ and test/<class>/",
    ):
        split_folder(tmp_path / "none", num_steps=2)
    with pytest.raises(ValueError, match="cannot be used: no class folder"):
        split_folder(tmp_path, num_steps=2)
    with pytest.raises(ValueError, match="root must name the folder of images, got None"):
        split_folder(num_steps=2)
    with pytest.raises(ValueError, match="a folder of images must be on disk"):
        split_folder(tmp_path, num_steps=2, download=True)


@pytest.mark.parametrize(
    ("num_classes", "num_steps", "base_fraction", "expected"),
    [
        (12, 5, 0.0, [3, 3, 2, 2, 2]),
        (7, 2, 0.0, [4, 3]),
        (7, 2, 0.5, [4, 2, 1]),
        (9, 4, 0.5, [5, 1, 1, 1, 1]),
        (6, 3, 0.0, [2, 2, 2]),
    ],
)
def test_steps_differ_by_one_class_at_most_and_the_larger_come_first(
    tmp_path, num_classes, num_steps, base_fraction, expected
):
    for number in range(num_classes):
        for image in range(2):
            place = tmp_path / f"{number:02}" / f"{image}.png"
            picture(place, 2 * number + image, size=(16, 16))
    benchmark = split_folder(tmp_path, num_steps=num_steps, base_fraction=base_fraction)
    steps = [one.classes_in_this_experience for one in benchmark.train_stream]
    assert [len(classes) for classes in steps] == expected
    assert sorted(class_id for classes in steps for class_id in classes) == list(range(num_classes))
    even = num_classes == 6
    assert bool(benchmark.remarks) != even
    assert even or ", ".join(map(str, expected)) in benchmark.remarks[0]


def test_more_steps_than_classes_are_refused(two_parts):
    with pytest.raises(ValueError, match="4 classes cannot be split over 5 steps.*1, 2, 3, 4"):
        split_folder(two_parts[0], num_steps=5)
    with pytest.raises(ValueError, match="2 classes after a base step of 2 cannot be split over 3"):
        split_folder(two_parts[0], num_steps=3, base_fraction=0.5)


def test_classes_arrive_in_the_order_of_the_names_given(two_parts):
    root, _ = two_parts
    benchmark = split_folder(root, num_steps=4, class_order=["cow", "ant", "dog", "bee"])
    assert [next(iter(one.classes_in_this_experience)) for one in benchmark.train_stream] == [
        2,
        0,
        3,
        1,
    ]
    with pytest.raises(
        ValueError, match="each of the 4 classes once. missing: bee; repeated: ant; unknown: emu"
    ):
        split_folder(root, num_steps=2, class_order=["cow", "ant", "dog", "ant", "emu"])


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_16_bit_images_are_scaled_to_8(two_parts, suffix):
    root, _ = two_parts
    values = np.array([[0, 257, 65535, 32768], [100, 400, 300, 51400]], dtype=np.uint16)
    (root / "test" / "ant" / "0.png").unlink()
    Image.fromarray(values.repeat(2, 0)).save(root / "test" / "ant" / f"0{suffix}")
    image = images_of(split_folder(root, num_steps=2, image_size=4).test_stream, 0)[0]
    expected = np.round(values.repeat(2, 0) / 257)[..., None].repeat(3, 2)
    torch.testing.assert_close(image, scaled(expected).float(), atol=1e-6, rtol=0)


def test_float_images_are_scaled_from_0_to_1_and_others_are_refused_by_name(two_parts):
    root, _ = two_parts
    path = root / "test" / "ant" / "0.tif"
    (root / "test" / "ant" / "0.png").unlink()
    Image.fromarray(np.full((4, 4), 0.2, dtype=np.float32)).save(path)
    image = images_of(split_folder(root, num_steps=2, image_size=4).test_stream, 0)[0]
    assert image.unique().tolist() == pytest.approx([0.2 * 2 - 1])
    for values, why in (
        (np.array([[0, 300]], dtype=np.float32), "floating-point pixels from 0 to 300"),
        (np.array([[0, 300]], dtype=np.int32), "32-bit integer pixels have no known range"),
    ):
        Image.fromarray(values).save(path)
        with pytest.raises(ValueError, match=rf"test/ant/0.tif \({why}"):
            split_folder(root, num_steps=2)


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory):
    """All 1000 synsets with one black picture each; n01443537 (id 1) has a white one."""
    root = tmp_path_factory.mktemp("imagenet")
    for part in ("train", "val"):
        one_file_a_class(root / part, imagenet_synsets())
        Image.new("RGB", (300, 280), (255, 255, 255)).save(
            root / part / "n01443537" / "n01443537_1.JPEG"
        )
    return root


def test_imagenet1000_arrives_in_the_papers_order(imagenet):
    benchmark = split_imagenet1000(imagenet, num_steps=10)
    order = class_order("imagenet1000")
    expected = [set(order[start : start + 100]) for start in range(0, 1000, 100)]
    assert [set(one.dataset.targets) for one in benchmark.train_stream] == expected
    assert [set(one.dataset.targets) for one in benchmark.test_stream] == expected
    assert benchmark.class_names == imagenet_synsets()
    white = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    image = images_of(benchmark.test_stream, 1)[0]
    assert image.shape == (3, 224, 224)
    torch.testing.assert_close(image[:, 100, 100], white)


def test_imagenet100_accepts_its_hundred_folders_and_names_what_is_wrong(tmp_path):
    for part in ("train", "val"):
        one_file_a_class(tmp_path / part, imagenet100_synsets())
    assert split_imagenet100(tmp_path, num_steps=10).classes_order == list(
        class_order("imagenet100")
    )
    with pytest.raises(
        ValueError,
        match=r"must hold the 1000 synset folders .* missing: n01860187, .* … \(900 in all\)",
    ):
        split_imagenet1000(tmp_path, num_steps=10)
    (tmp_path / "val" / "n01440764").rename(tmp_path / "val" / "n99999999")
    with pytest.raises(
        ValueError,
        match="val must hold the 100 synset folders .* missing: n01440764; unexpected: n99999999",
    ):
        split_imagenet100(tmp_path, num_steps=10)


@pytest.mark.parametrize("split", [split_imagenet100, split_imagenet1000])
def test_imagenet_that_is_not_on_disk_says_where_it_looked_and_how_to_get_it(tmp_path, split):
    (tmp_path / "train").mkdir()
    with pytest.raises(FileNotFoundError) as error:
        split(tmp_path, num_steps=10)
    assert f"looked for {tmp_path / 'val'}." in str(error.value) and "https://image-net.org" in str(
        error.value
    )
    with pytest.raises(
        ValueError, match="download=True is for CIFAR-100 only: ImageNet needs an account"
    ):
        split(tmp_path, num_steps=10, download=True)


def of_imagenet(root):
    """A benchmark of ImageNet-100, with one image of each class."""
    for part in ("train", "val"):
        one_file_a_class(root / part, imagenet100_synsets())
    return split_imagenet100(root, num_steps=10)


def test_imagenet_is_identified_by_paths_below_its_folder_sizes_and_labels(tmp_path):
    benchmark = of_imagenet(tmp_path / "a")
    known = benchmark.fingerprint()
    assert known == of_imagenet(tmp_path / "b" / "deeper").fingerprint()  # a copy elsewhere
    file = tmp_path / "a" / "val" / imagenet100_synsets()[7] / f"{imagenet100_synsets()[7]}_1.JPEG"
    content = file.read_bytes()
    file.write_bytes(content + b"x")
    assert benchmark.fingerprint() != known  # of another size
    file.write_bytes(content)
    assert benchmark.fingerprint() == known
    file.rename(file.with_name("other.JPEG"))
    assert split_imagenet100(tmp_path / "a", num_steps=10).fingerprint() != known
    with pytest.raises(FileNotFoundError):
        benchmark.fingerprint()


def test_your_folder_is_identified_by_its_content(two_parts):
    root, _ = two_parts
    known = split_folder(root, num_steps=2, image_size=6).fingerprint()
    file = root / "test" / "ant" / "0.png"
    content = bytearray(file.read_bytes())
    picture(file, 77)
    assert split_folder(root, num_steps=2, image_size=6).fingerprint() != known
    file.write_bytes(content)
    assert split_folder(root, num_steps=2, image_size=6).fingerprint() == known

import pytest
import torch
import torch.nn.functional as F
from small_vits import images
from torch import nn
from torchvision.models import resnet18

from avalanche_hfc.lab import recipe
from avalanche_hfc.models import ResNet18, ResNet32


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def reference32(model, x, *, block_relu, last_relu):
    """ResNet-32 written out: the sums of all blocks, and the embedding."""
    conv, norm, _ = model.stem
    x, sums = F.relu(norm(conv(x))), []
    for number in range(15):
        block = model.blocks[number]
        branch = block.bn2(block.conv2(F.relu(block.bn1(block.conv1(x)))))
        if number in (5, 10):
            shortcut = torch.zeros_like(branch)
            shortcut[:, : x.shape[1]] = x[:, :, 0::2, 0::2]
        else:
            shortcut = x
        sums.append(branch + shortcut)
        x = F.relu(sums[-1]) if block_relu else sums[-1]
    last = F.relu(sums[-1]) if last_relu else sums[-1]
    return sums, last.flatten(2).mean(2)


def lively(model):
    """Statistics and gains that are not 1 and 0, so that a norm left out is seen."""
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (
                module.weight.data,
                module.bias.data,
                module.running_mean,
                module.running_var,
            ):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
            module.bias.data -= 1.0
    return model.eval()


def test_resnet32_has_0_46_million_parameters():
    model = ResNet32()
    assert count(model) == 463_504
    model.head.grow(range(100))
    assert count(model) == 463_504 + 6_500
    widths = [(block.conv1.out_channels, block.conv1.stride) for block in model.blocks]
    assert (
        widths
        == [(16, (1, 1))] * 5
        + [(32, (2, 2))]
        + [(32, (1, 1))] * 4
        + [(64, (2, 2))]
        + [(64, (1, 1))] * 4
    )


@pytest.mark.parametrize("block_relu", [True, False])
@pytest.mark.parametrize("last_relu", [True, False])
def test_resnet32_is_the_network_written_out_and_its_stages_are_sums_before_the_relu(
    block_relu, last_relu
):
    torch.manual_seed(0)
    model = lively(ResNet32(block_relu=block_relu, last_relu=last_relu)).double()
    x = images(size=32, dtype=torch.float64)
    sums, embedding = reference32(model, x, block_relu=block_relu, last_relu=last_relu)
    features = model.features(x)
    torch.testing.assert_close(features.embedding, embedding, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        features.stages, [sums[4], sums[9], sums[13], sums[14]], rtol=1e-12, atol=1e-12
    )
    assert [tuple(stage.shape[1:]) for stage in features.stages] == [
        (16, 32, 32),
        (32, 16, 16),
        (64, 8, 8),
        (64, 8, 8),
    ]
    assert all((stage < 0).any() for stage in features.stages) and features.tokens is None
    assert (embedding < 0).any() == (not last_relu)


def test_resnet18_is_torchvision_s_with_its_weights():
    torch.manual_seed(0)
    reference, model = lively(resnet18()), ResNet18().eval()
    entries = {
        name: tensor
        for name, tensor in reference.state_dict().items()
        if not name.startswith("fc.")
    }
    assert set(model.backbone.state_dict()) == set(entries)
    model.backbone.load_state_dict(entries)
    outputs = []
    for layer in (reference.layer1, reference.layer2, reference.layer3, reference.layer4):
        layer.register_forward_hook(lambda _, __, output: outputs.append(output))
    reference.fc = nn.Identity()
    embedding = reference(images(size=64))
    features = model.features(images(size=64))
    torch.testing.assert_close(features.embedding, embedding, rtol=1e-5, atol=1e-5)
    for stage, output, shape in zip(
        features.stages, outputs, [(64, 16), (128, 8), (256, 4), (512, 2)], strict=True
    ):
        torch.testing.assert_close(F.relu(stage), output, rtol=1e-5, atol=1e-5)
        assert (stage < 0).any() and stage.shape == (3, shape[0], shape[1], shape[1])


def test_resnet18_of_podnet_and_afc_is_the_network_of_their_code():
    """Written out from it: 3x3 stem, max pool, ReLU after the sum of the first block of a layer
    only, maps and pooling without ReLU.
    """
    torch.manual_seed(0)
    model = ResNet18(**dict(recipe("imagenet100-b0-t5-podnet-resnet18@paper").model.options))
    net, x = lively(model).double().backbone, images(size=32, dtype=torch.float64)
    assert net.conv1.kernel_size == (3, 3) and net.conv1.stride == (1, 1)
    x, maps = F.max_pool2d(F.relu(net.bn1(net.conv1(x))), 3, stride=2, padding=1), []
    for layer in (net.layer1, net.layer2, net.layer3, net.layer4):
        first, second = layer
        branch = first.bn2(first.conv2(F.relu(first.bn1(first.conv1(x)))))
        x = F.relu(branch + (x if first.downsample is None else first.downsample(x)))
        x = second.bn2(second.conv2(F.relu(second.bn1(second.conv1(x))))) + x
        maps.append(x)
    features = model.features(images(size=32, dtype=torch.float64))
    torch.testing.assert_close(features.stages, maps, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        features.embedding, maps[-1].flatten(2).mean(2), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize(
    ("kind", "options"), [(ResNet18, {}), (ResNet32, {}), (ResNet32, {"init": "fan_in"})]
)
def test_convolutions_start_normal_by_their_fan_and_norms_as_the_identity_but_the_last_of_a_block_with_zero_residual(
    kind, options
):
    torch.manual_seed(0)
    model = kind(zero_residual=True, **options)
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 2000:
            channels = module.in_channels if options else module.out_channels
            fan = channels * module.kernel_size[0] * module.kernel_size[1]
            assert module.weight.std().item() == pytest.approx((2 / fan) ** 0.5, rel=0.08), name
        if isinstance(module, nn.BatchNorm2d):
            assert (
                module.weight == (0 if name.endswith("bn2") else 1)
            ).all() and not module.bias.any(), name


@pytest.mark.parametrize(
    "options, first, parameters",
    [
        ({}, 8, 11_176_512),
        ({"max_pool": False}, 16, 11_176_512),
        ({"stem": "3x3"}, 32, 11_168_832),
        ({"stem": "3x3", "max_pool": True}, 16, 11_168_832),
    ],
    ids=str,
)
def test_resnet18_has_11_2_million_parameters_and_the_stem_asked_for(options, first, parameters):
    model = ResNet18(**options).eval()
    assert count(model) == parameters
    assert model.features(images(batch=1, size=32)).stages[0].shape == (1, 64, first, first)


def test_a_weights_file_of_a_bare_resnet18_loads(tmp_path):
    reference = lively(resnet18())
    torch.save(reference.state_dict(), tmp_path / "net.pth")
    model = ResNet18(weights=tmp_path / "net.pth")
    assert model.load_report.added == "backbone." and model.load_report.unexpected == (
        "fc.weight",
        "fc.bias",
    )
    assert torch.equal(model.backbone.layer3[1].conv2.weight, reference.layer3[1].conv2.weight)


def test_an_unknown_stem_and_weights_of_another_stem_are_refused():
    with pytest.raises(ValueError, match="7x7, 3x3, got '5x5'"):
        ResNet18(stem="5x5")
    with pytest.raises(ValueError, match="stem='3x3'"):
        ResNet18(stem="3x3", weights="timm")

import torch

from avalanche_hfc import load_run

trained = load_run("runs/folder-b0-t2-hfc@demo/0")
images = torch.zeros(2, *trained.input_shape)
any_batch = ({0: torch.export.Dim("batch")},)

program = torch.export.export(trained.model, (images,), dynamic_shapes=any_batch)
torch.export.save(program, "model.pt2")

script = torch.jit.trace(trained.model, images)
torch.jit.save(script, "model.pt")

torch.onnx.export(  # needs avalanche_hfc[onnx]
    trained.model, (images,), "model.onnx", dynamo=True, dynamic_shapes=any_batch
)

more = torch.randn(5, *trained.input_shape)
for exported in (torch.export.load("model.pt2").module(), torch.jit.load("model.pt")):
    torch.testing.assert_close(exported(more), trained.model(more))

"""A data-parallel PyTorch training (DDP) on as many workers as there is room for: it gives half of them back when
others need the room, and grows again, each time from its checkpoint.

    fairway submit --workers 4 --min-workers 2 --gpus 1 -- python3 examples/train.py CHECKPOINT STEPS

Fairway says in the environment which rank this is, of how many, and where rank 0 listens: all that PyTorch asks for.
All ranks of a step share one batch, so that the training is the same whatever their number.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH, WIDTH, STEPS_PER_CHECKPOINT = 64, 16, 5


def main() -> None:
    checkpoint, steps = Path(sys.argv[1]), int(sys.argv[2])
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first = load(checkpoint, model, device)
    rank, size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {size}: from step {first}", flush=True)
    parallel = DistributedDataParallel(model)
    for step in range(first, steps):
        inputs, wanted = (each.to(device) for each in batch(step, rank, size))
        loss = torch.nn.functional.mse_loss(parallel(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % STEPS_PER_CHECKPOINT == 0:
            save(checkpoint, step + 1, model)
    print(f"rank {rank} of {size}: done", flush=True)
    dist.destroy_process_group()


def batch(step: int, rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the batch of a step; here it would read something."""
    chance = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, WIDTH, generator=chance)
    return inputs[rank::size], inputs.sum(dim=1, keepdim=True)[rank::size]


def load(checkpoint: Path, model: torch.nn.Module, device: torch.device) -> int:
    """The step to go on from: 0 without a checkpoint."""
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, map_location=device, weights_only=True)
    step = int(state.pop("step"))
    model.load_state_dict(state)
    return step


def save(checkpoint: Path, step: int, model: torch.nn.Module) -> None:
    """Written whole or not at all: a rank may be stopped at any moment. The state of an optimizer that has one belongs
    here too."""
    draft = checkpoint.with_name(f"{checkpoint.name}.{os.getpid()}")
    torch.save({**model.state_dict(), "step": torch.tensor(step)}, draft)
    draft.rename(checkpoint)


if __name__ == "__main__":
    main()

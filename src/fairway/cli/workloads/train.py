"""A small real training that survives preemption: python -m fairway.cli.workloads.train --checkpoint FILE

Gradient descent on a linear regression. On SIGTERM it finishes its step, writes a checkpoint and exits with 143, as a
program does that was asked to stop; started again with the same file it goes on with the next step. The checkpoint is
written beside the file and renamed, so that a kill at any moment leaves the old one or the new one.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

import numpy as np

ROWS, COLUMNS, RATE = 20_000, 64, 0.05


def main() -> int:
    options = _options()
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
    step, weights = _load(options.checkpoint)
    said = f"resuming from step {step}" if step else "starting at step 0"
    print(f"{said} on GPU {os.environ.get('CUDA_VISIBLE_DEVICES') or 'none'}", flush=True)
    features, target = _data()
    while step < options.steps and not stop:
        error = features @ weights - target
        weights -= RATE * features.T @ error / ROWS
        step += 1
        if step % options.every == 0:
            print(f"step {step} loss {float(error @ error) / ROWS:.6f}", flush=True)
            _save(options.checkpoint, step, weights)
    _save(options.checkpoint, step, weights)
    if stop:
        print(f"SIGTERM: checkpoint written at step {step}", flush=True)
        return 128 + signal.SIGTERM
    print(f"done at step {step}", flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small regression, with checkpoints.")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=100, help="steps between two lines and checkpoints")
    return parser.parse_args()


def _data() -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(7)
    features = source.normal(size=(ROWS, COLUMNS))
    return features, features @ source.normal(size=COLUMNS) + source.normal(scale=0.1, size=ROWS)


def _load(path: Path) -> tuple[int, np.ndarray]:
    if not path.exists():
        return 0, np.zeros(COLUMNS)
    with np.load(path) as saved:
        return int(saved["step"]), saved["weights"]


def _save(path: Path, step: int, weights: np.ndarray) -> None:
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        np.savez(file, step=step, weights=weights)
    beside.rename(path)


if __name__ == "__main__":
    sys.exit(main())

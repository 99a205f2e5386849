"""What transformers itself leaves on rank 0 of N: `python sharded_sizes.py REQUEST.json ANSWER.json`.

Each model is built on the meta device and distributed over a fake process group, as from_pretrained does before it
reads a weight. The request is `{"cores": N, "models": [{"config", "auto_class", "ep", "override"}]}`, the answer a list
of bytes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import CONFIG_MAPPING, DistributedConfig
from transformers.initialization import no_tie_weights


def local_bytes(model: dict[str, Any], cores: int) -> int:
    config = CONFIG_MAPPING[model["config"]["model_type"]].from_dict(dict(model["config"]))
    wanted = DistributedConfig(tp_size=cores, ep_size=model["ep"], tp_plan=model["override"] or None)
    with torch.device("meta"), no_tie_weights():
        built = getattr(transformers, model["auto_class"]).from_config(config, dtype=torch.bfloat16)
    kind = type(built)
    wanted, _, mesh = kind.prepare_distribute_model(wanted)
    built = kind.maybe_distribute_model(built, wanted, mesh)
    built.tie_weights()
    persistent = set(built.state_dict())
    tensors = [*built.parameters(), *(buffer for name, buffer in built.named_buffers() if name in persistent)]
    return sum((t.to_local() if isinstance(t, DTensor) else t).nbytes for t in tensors)


def main(request_path: str, answer_path: str) -> None:
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))
    cores = request["cores"]
    os.environ |= {"WORLD_SIZE": str(cores), "RANK": "0", "LOCAL_RANK": "0"}
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=cores)
    answer = [local_bytes(model, cores) for model in request["models"]]
    Path(answer_path).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

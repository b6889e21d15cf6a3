"""Tries what newcomers type by mistake; every answer has an exit code that is not 0, at most three lines, and no traceback.

    python tests/soak/wrong_usages.py --out docs/results/wrong_usages.json

Each command runs in this process, one after the other, in an empty folder with a few wrong files. An answer has to name the key or
the value that was wrong. A command that is accepted is a finding as well.
"""

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time
import traceback
from pathlib import Path

from cod_lightning.cli import main

FILES = {
    "afile": "",
    "empty.yaml": "",
    "list.yaml": "- 1\n- 2\n",
    "broken.yaml": "model: {lr: 1\n",
    "binary.yaml": "\x00\x01\x02",
    "wrong_key.yaml": "model:\n  lrr: 3\n",
    "wrong_group.yaml": "modle:\n  lr: 3\n",
    "wrong_value.yaml": "defaults: [/smoke@_global_, _self_]\nmodel:\n  lr: fast\n",
    "wrong_class.yaml": "defaults: [/smoke@_global_, _self_]\ndata:\n  env: {class_path: shop.Shop}\n",
    "no_such_default.yaml": "defaults: [/smokke@_global_, _self_]\n",
    "damaged.ckpt": "not a checkpoint",
    "suite.yaml": "name: mine\nnum_packs: many\n",
    "not_a_world.py": "class Shop: pass\n",
    "raises.py": "raise RuntimeError('no database')\n",
}
USAGES = (
    """
fitt
--confg
fit
fit --config
fit --config smokke
fit --config afile
fit --config list.yaml
fit --config broken.yaml
fit --config binary.yaml
fit --config .
fit --config nowhere/x.yaml
fit --config smoke --config wrong_key.yaml
fit --config smoke --config wrong_group.yaml
fit --config wrong_value.yaml
fit --config wrong_class.yaml
fit --config no_such_default.yaml
fit smoke
fit quickstart --config
fit --help modle
SMOKE --model.lrr 3
SMOKE --model.lr abc
SMOKE --model.lr -1
SMOKE --model.lr 0
SMOKE --model.lr nan
SMOKE model.lrr=3
SMOKE model.lr
SMOKE --data.pack_size 0
SMOKE --data.pack_size 1
SMOKE --data.pack_size 1000000
SMOKE --data.pack_size 2.5
SMOKE --data.group_size 1
SMOKE --data.packs_per_rollout 5 --data.updates_per_rollout 4
SMOKE --data.val_packs 0
SMOKE --data.max_new_tokens 0
SMOKE --data.max_new_tokens 1000000000000000000000000000000
SMOKE --seed_everything -3
SMOKE --seed_everything 99999999999
SMOKE --torch_threads 0
SMOKE --torch_threads -2
SMOKE --checkpoint_every 0
SMOKE --keep_checkpoints 0
SMOKE --sampled_token_budget 0
SMOKE --sampled_token_budget -5
SMOKE --model.betas [1,2]
SMOKE --model.scale big
SMOKE --model.token_budget 0
SMOKE --model.gradient_clip_val -1
SMOKE --model.policy.hidden_size 63
SMOKE --model.policy.num_heads 0
SMOKE --model.policy.window 0
SMOKE --model.policy.hidden 64
SMOKE --model.optimizer sgd
SMOKE --data.max_staleness 2
SMOKE --data.deadlines.turn_s -1
SMOKE --data.deadlines.turns 3
SMOKE --data.max_failed_fraction 2
SMOKE --data.temperature -1
SMOKE --data.top_p 0
SMOKE --data.suites nosuch
SMOKE --data.suites [nosuch]
SMOKE --data.suites [suite.yaml]
SMOKE --overwrite perhaps
SMOKE --env levrs
SMOKE env=levrs
SMOKE --data.env levrs
SMOKE env=shop.Shop
SMOKE env=not_a_world.Shop
SMOKE env=raises.World
SMOKE --data.env.max_trns 3
SMOKE data.env.max_turns=0
SMOKE data.env.max_turns=x
SMOKE data.env.protocol=compackt
SMOKE --data.context nowhere.Notes
SMOKE context=notebok_compact
SMOKE credit=discont
SMOKE loss=ciscpo
SMOKE --model.loss.clip_lo 3
SMOKE strategy=ddpp
SMOKE colour=red
SMOKE --data.engine vlm
SMOKE plan=sometimes
SMOKE env=terminal_hard
SMOKE --trainer.max_epochs x
SMOKE --trainer.max_epochs 0.5
SMOKE --trainer.devices 0
SMOKE --trainer.devices 7
SMOKE --trainer.accelerator cuda
SMOKE --trainer.accelerator tpuu
SMOKE --trainer.precision 7
SMOKE --trainer.accumulate_grad_batches 2
SMOKE --trainer.gradient_clip_val 1
SMOKE --trainer.default_root_dir afile
SMOKE --trainer.default_root_dir afile/run
SMOKE --trainer.default_root_dir /proc/x
SMOKE --ckpt_path nowhere.ckpt
SMOKE --ckpt_path afile
SMOKE --ckpt_path damaged.ckpt
SMOKE --ckpt_path last
fit --config smoke --warm_start nowhere
fit --config smoke --warm_start afile
SMOKE --model.policy cod_lightning.models.PretrainedPolicy --model.policy.path Qwen/Nowhere-0.6B
SMOKE --model.policy cod_lightning.models.PretrainedPolicy --model.policy.path afile
SMOKE --model.policy cod_lightning.models.PretrainedPolicy
fit --config experiment/endpoint
test --config smoke --warm_start null --ckpt_path nowhere.ckpt
test --config smoke --warm_start null --ckpt_path damaged.ckpt
test --config smoke --warm_start null --suites nosuch
test --ckpt_paths [a.ckpt,b.ckpt] --config smoke
predict --config smoke --ckpt_path nowhere.ckpt
validate --config smoke --ckpt_path nowhere.ckpt
plan --config smoke --gpu_gb -1
plan --config nowhere
warm_start --config smoke
warm_start --config warm_start/nowhere
export
export --ckpt_path nowhere.ckpt --out x
export --ckpt_path damaged.ckpt --out x
deploy
deploy --config smoke
DEPLOY --num_tasks -1
DEPLOY --num_tasks x
DEPLOY --split tset
DEPLOY --sampling_temperature -1
deploy --config smoke --warm_start null --state afile
deploy --config smoke --warm_start null --state /proc/x
deploy --ckpt_path damaged.ckpt --state ada
context
context revert 1
context log
context log --state nowhere
context log --state afile
context show --state nowhere --version 3
context forget --state ada
play
play --env levrs
play --env shop.Shop
play --env levers --num_tasks 0
play --env levers --policy robot
play --env levers --index x
play --env levers --split tst
play --env levers --env.max_trns 3
play --ckpt_path nowhere.ckpt
check
check --env levrs
check --env levers --num_packs 1
check --env levers --pack_size 1
check --context nowhere.Notes
check --config nowhere
references --worlds levrs
references --worlds levers --num_packs 1
references --num_packs x
references --worlds levers --pack_size 0
worlds levers
report
report nowhere
report afile
report .
sweep
sweep --config nowhere credit=a,b
sweep --config smoke credit=episode,nosuch --print_jobs
sweep --config smoke credit=episode,task --launcher slurm
sweep --config smoke credit=episode,task --jobs 0
sweep --table nowhere
""".strip()
    .replace("SMOKE", "fit --config smoke --warm_start null")
    .replace("DEPLOY", "deploy --config smoke --warm_start null --state ada")
    .splitlines()
)


def answer(usage: str) -> dict[str, object]:
    """What one command said, and what is wrong with that."""
    out, err = io.StringIO(), io.StringIO()
    begun, code = time.perf_counter(), 0
    trace = ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(usage.split())
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            trace = traceback.format_exc()
    lines = [line for line in err.getvalue().splitlines() if line.strip()]
    typed = {word.strip("-[]") for word in usage.replace("=", " ").split() if len(word) > 2}
    wrong = []
    if trace or "Traceback" in err.getvalue():
        wrong.append("a traceback")
    elif code == 0:
        wrong.append("accepted")
    elif len(lines) > 3 or not lines:
        wrong.append(f"{len(lines)} lines")
    elif (
        not re.search(r": [-\w.]+ is ", lines[-1])
        and not any(word.strip("[]") in lines[-1] for word in typed if len(word) > 2)
        and len(usage.split()) > 1
    ):
        wrong.append("names neither key nor value")
    shown = (lines[-1] if lines else "")[:300] if not trace else trace.splitlines()[-1][:300]
    return {
        "usage": usage,
        "code": code,
        "seconds": round(time.perf_counter() - begun, 1),
        "says": shown,
        "wrong": wrong,
    }


def run() -> int:
    """Try all; the number of findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=len(USAGES))
    options = parser.parse_args()
    home, found = Path.cwd(), []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        for name, text in FILES.items():
            Path(name).write_text(text)
        for usage in USAGES[options.first :][: options.count]:
            found.append(answer(usage))
            if found[-1]["wrong"]:
                print(f"{usage}\n  {found[-1]['wrong']}: {found[-1]['says']}", flush=True)
        os.chdir(home)
    bad = [one for one in found if one["wrong"]]
    print(f"{len(found)} wrong usages, {len(bad)} findings")
    if options.out is not None:
        options.out.write_text(
            json.dumps({"usages": len(found), "findings": len(bad), "answers": found}, indent=1) + "\n"
        )
    return len(bad)


if __name__ == "__main__":
    sys.exit(min(1, run()))

"""What newcomers type by mistake, and what an answer to it must hold: an exit code that is not 0, at most eight lines that a screen
shows, the key, the value, a remedy, and no traceback.
"""

import contextlib
import io
import re
import traceback
from pathlib import Path

from cod_lightning.cli import main

FILES = {
    "afile": "",
    "no_prompt.jsonl": '{"ask": "q", "answer": 1, "group": 1}\n',
    "list.yaml": "- 1\n- 2\n",
    "broken.yaml": "model: {lr: 1\n",
    "wrong_key.yaml": "model:\n  lrr: 3\n",
    "no_such_default.yaml": "defaults: [/smokke@_global_, _self_]\n",
    "damaged.ckpt": "not a checkpoint",
    "suite.yaml": "name: mine\nnum_packs: many\n",
    "half.py": "from cod_lightning.envs.base import TextEnv\n\n\nclass Half(TextEnv):\n    rules = success = status = ''\n",
    "faulty.py": "from cod_lightning.contexts import HintContext\nfrom cod_lightning.envs.levers import Levers\n\n\n"
    + "".join(
        f"class {name}({base}):\n    def {method}(self, *_, **__):\n        raise OSError('no database')\n\n\n"
        for name, base, method in (
            ("Built", "Levers", "__init__"),
            ("Drawn", "Levers", "sample_pack"),
            ("Shown", "HintContext", "prepare"),
        )
    ),
    "flat_trainer.yaml": "defaults: [/smoke@_global_, _self_]\ntrainer: 3\n",
    "twice.yaml": "model:\n  lr: 1.0e-3\n  lr: 2.0e-3\n",
    "nowhere_value.yaml": "defaults: [/smoke@_global_, _self_]\nmodel:\n  lr: ${nowhere.at.all}\n",
    "raises.py": "raise RuntimeError('no database')\n",
}

QUICK = """
--confg
context forget --state ada ## forget | revert
context revert --state nowhere --version 1 ## --state | nowhere
play --env levrs ## --env | levrs | Did you mean levers?
play --env levers --num_tasks 0
play --env levers --policy oracel ## policy | oracel | oracle
play --env levers --nun_tasks 2 ## --nun_tasks | Did you mean num_tasks?
play --env levers --a 3 ## --a=3 (python
play --env levers --env.max_trns 3 ## Did you mean max_turns?
play --env.max_turns 3
play --env raises.World ## raises.py:1 | no database
play --env faulty.Built ## faulty.py:7 | no database
play --env faulty.Drawn ## --env | Drawn | faulty.py:12
play --env faulty.Bilt ## faulty.Bilt | Did you mean Built?
play --env half.Half ## half.Half | is abstract | It lacks sample_pack, step.
check ## --env | missing
check --env nowhere.World ## nowhere.World
check --env half.py ## half.py | my_file.MyWorld
check --env dataset --env.path no_prompt.jsonl ## 'prompt', the column of data.env.prompt; the file has ask, answer
worlds --env levers
report ## required: runs
report nowhere
sweep ## --config | missing
sweep --config smoke ## choices | missing | fit --config smoke
sweep --config nowhere credit=a,b ## --config | nowhere
sweep --table nowhere
sweep --config smoke creditt=episode,task --print_jobs ## creditt
sweep --config smoke model.lrr=1,2 --print_jobs ## --model.lrr=1
sweep --config smoke model.lr=interval(0,1) --print_jobs ## model.lr=interval(0,1) | does not support sweep type
sweep --config smoke seed_everything=a,b --print_jobs ## seed_everything | a
sweep --config smoke method=nft,sdpo loss=GRPO --print_jobs ## method=nft | method=sdpo
fit --config list.yaml
fit --config wrong_key.yaml env=levers ## Name a config first
fit --config smoke -credit task ## -credit | two dashes
fit --config smoke credit=task ## credit | task | Did you mean TaskCredit?
fit --config smoke engine=vllm ## engine | vllm | Did you mean VLLMEngine?
fit --config smoke loss=gspo ## loss | gspo | Did you mean GSPO?
fit --config smoke policy=lora ## policy | lora | Did you mean LoRAPolicy?
fit --config smoke strategy=ddp ## strategy | ddp | --trainer.strategy ddp
fit --config smoke method=[grpo,rec] ## method | [grpo,rec] | method=grpo,rec
fit --config smoke --ckpt_path nowhere.ckpt
test --config smoke --ckpt_path arun ## ckpt_path | arun | Did you mean arun/checkpoints/last.ckpt?
"""
"""Commands that import no torch. A row names after ` ## ` what the answer must name, where that is not its last key and value."""
BUILT = """
doctor ## required: run
fit ## --config | missing | quickstart
fit smoke
fit --config smokke ## smokke | Did you mean smoke?
fit --config broken.yaml
fit --config twice.yaml ## twice.yaml | lr | twice
fit --config no_such_default.yaml ## no_such_default.yaml | smokke | Did you mean smoke?
fit --config nowhere_value.yaml ## nowhere.at.all
fit --config smoke --config wrong_key.yaml ## Did you mean model.lr?
fit --help modle ## --help | modle | Did you mean model?
fit --config smoke methodd=grpo ## methodd=grpo | Did you mean method?
fit --config smoke credit=TaskCreditt ## credit | TaskCreditt | Did you mean TaskCredit?
SMOKE --model.scale big
SMOKE --data.env.stated first ## Option 'stated' is not accepted (
SMOKE --data.env.protocol natural ## data.env | Levers | 'Pull' | words()
SMOKE --data.group_size 1
fit --config smoke --seed 2 ## --seed=2 | Did you mean seed_everything?
SMOKE --data.suites [held_out] ## setting_b. Check the spelling.
SMOKE --data.rewards.judge JudgeRewardd ## data.rewards | JudgeRewardd | Did you mean JudgeReward?
SMOKE --data.suites [in_domian] ## data.suites | in_domian | Did you mean in_domain?
SMOKE --data.suites [suite.yaml] ## data.suites | num_packs | many
SMOKE --data.context faulty.Shown ## data.context | Shown | faulty.py:17
SMOKE --config flat_trainer.yaml ## trainer | 3
SMOKE --seed_everything -3 ## seed_everything | -3 | from 0 to 4294967295
SMOKE --seed_everything 4294967296
SMOKE --trainer.fast_dev_run true ## trainer.fast_dev_run | True | keeps no metrics
SMOKE --trainer.overfit_batches 1 ## trainer.overfit_batches | 1
SMOKE --trainer.accelerator cuda
SMOKE --trainer.max_steps 0
SMOKE --trainer.max_epochs x ## "trainer.max_epochs": | <class 'int'> | Given value: x (
SMOKE --data.rewards.length OverlongReward --data.rewards.length.full_tokens x ## "data.rewards": | Problem with | full_tokens | x')
SMOKE --trainer.devices 7 ## data.packs_per_rollout | 7 ranks
SMOKE --trainer.default_root_dir afile
SMOKE --ckpt_path last
SMOKE --model.policy cod_lightning.models.PretrainedPolicy --model.policy.path /no/such ## /no/such | none of this name
SMOKE --model.policy PretrainedPolicy --model.policy.path runs/shown/policy ## runs/shown/policy | none of this name
fit --config smoke --warm_start nowhere
fit --config smoke --data.system_prompt Hello ## data.system_prompt | Hello | --warm_start null
fit --config smoke model.policy=LoRAPolicy ## model.policy.path | null | warm_start.policy
test --data.suites [in_domain] ## --config | missing | --config quickstart
test --config smoke --warm_start null --trainer.default_root_dir arun ## ckpt_path | null | arun | --ckpt_path last
warm_start --config smoke --warm_start null ## warm_start | null | --warm_start.num_updates
export --config smoke ## out | required
export --ckpt_path last --out x ## ckpt_path | last | runs/NAME
deploy --config smoke --warm_start null ## required: --state
deploy --config smoke --warm_start null --state afile
deploy --ckpt_path damaged.ckpt --state ada ## ckpt_path | damaged.ckpt
evolve --config smoke --warm_start null ## out | required
plan --config smoke --gpu_gb 24 ## model.policy | TinyPolicy | a policy from a folder or the hub
serve --config smoke ## data.engine is TransformersEngine
"""
"""Commands that build parsers of Lightning, or more."""
SIGNALS = """
fit --config smoke engine=VLLMServerEngine --trainer.devices 2 --data.engine.local.devices ["3"] ## local.devices | 2 entries
fit --config smoke source=Growth --data.source.init_args.num_tasks [2,9] ## data.source.num_tasks | [2, 9] | data.pack_size
fit --config smoke --data.rewards.judge JudgeReward --data.rewards.judge.rubric rubric.txt ## JudgeReward.rubric | rubric.txt
fit --config smoke --data.frozen FrozenRole --data.frozen.kind solve --data.frozen.path nowhere ## data.frozen.path | nowhere
fit --config smoke program=ProposeAndSolve --data.program.solves 3 ## data.program.solves | 3 | data.pack_size
fit --config smoke method=nft replay=SignalReplay ## data.replay | SignalReplay | model.loss
"""
"""Of curricula, judges, roles and replay, each in a training that would begin with a warm start."""
_LINES, _COLUMNS = 8, 160


def usages(table: str) -> list[tuple[str, tuple[str, ...]]]:
    """Each command of the table, with what its answer must name."""
    out = []
    for row in table.strip().splitlines():
        typed, _, names = row.partition(" ## ")
        out.append((typed, tuple(names.split(" | ")) if names else _key_and_value(typed)))
    return out


def _key_and_value(typed: str) -> tuple[str, ...]:
    """The last key that was typed, by its last part, and its value."""
    words = typed.split()
    for place in range(len(words) - 1, 0, -1):
        key, is_assigned, value = words[place].partition("=")
        if re.match(r"--?[A-Za-z]", words[place]) or is_assigned:
            value = value if is_assigned else " ".join(words[place + 1 : place + 2])
            return tuple(name for name in (key.strip("-").rpartition(".")[2], value.strip("[]'")) if name)
    return tuple(words[-1:])


def findings(usage: str, names: tuple[str, ...]) -> list[str]:
    """What is wrong with the answer to a command, in the current folder, which holds `FILES`."""
    usage = usage.replace("SMOKE", "fit --config smoke --warm_start null")
    out, err, code, trace = io.StringIO(), io.StringIO(), 0, ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([word.strip("'") for word in usage.split()])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            trace = traceback.format_exc()
    answer = err.getvalue().strip() or trace
    lines = sum(-(-len(line) // _COLUMNS) for line in answer.splitlines())
    if "not accept" in answer:
        names = names[:1]  # of a key that is not there the value may be right
    checks = {
        "a traceback": bool(trace) or "Traceback" in answer,
        "exit code 0": code == 0 and not trace,
        f"{lines} lines": not 0 < lines <= _LINES,
        "no remedy": re.search(r"; (expected|it) .*[.?)] .*[.?]$|--help[^)]*\)$", answer) is None,
        **{f"does not name {name}": name not in answer for name in names},
    }
    return [f"{finding}: {answer[-600:]}" for finding, found in checks.items() if found]


def lay_out(folder: Path) -> None:
    """Write `FILES` into the folder."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "arun" / "checkpoints").mkdir(parents=True)
    (folder / "arun" / "checkpoints" / "last.ckpt").write_text("of a trained policy")

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
    "no_group.jsonl": '{"prompt": "q", "answer": 1, "series": 1}\n',
    "empty.jsonl": "",
    "list.yaml": "- 1\n- 2\n",
    "broken.yaml": "model: {lr: 1\n",
    "wrong_key.yaml": "model:\n  lrr: 3\n",
    "wrong_group.yaml": "modle:\n  lr: 3\n",
    "wrong_value.yaml": "defaults: [/smoke@_global_, _self_]\nmodel:\n  lr: fast\n",
    "wrong_class.yaml": "defaults: [/smoke@_global_, _self_]\ndata:\n  env: {class_path: shop.Shop}\n",
    "no_such_default.yaml": "defaults: [/smokke@_global_, _self_]\n",
    "damaged.ckpt": "not a checkpoint",
    "suite.yaml": "name: mine\nnum_packs: many\n",
    "half.py": "from cod_lightning.envs.base import TextEnv\n\n\nclass Half(TextEnv):\n    rules = success = status = ''\n",
    "faulty.py": "from cod_lightning.contexts import HintContext\n"
    "from cod_lightning.envs.levers import Levers; from cod_lightning.envs.base import Players, Vocabulary\n\n\n"
    + "".join(
        f"class {name}({base}):\n    def {method}(self, *_, **__):\n        raise OSError('no database')\n\n\n"
        if base != "companion"
        else f"class {name}(Levers):\n    class Own({kind}):\n        def {method}(self, *_): raise OSError('no database')\n"
        "    companions = (Own, *Levers.companions)\n\n"
        for name, base, kind, method in (
            ("Built", "Levers", "", "__init__"),
            ("Drawn", "Levers", "", "sample_pack"),
            ("Listed", "companion", "Vocabulary", "words"),
            ("Begun", "Levers", "", "reset"),
            ("Compared", "companion", "Players", "reference"),
            ("Notes", "HintContext", "", "__init__"),
            ("Shown", "HintContext", "", "prepare"),
        )
    ),
    "unknown_tag.yaml": "model: !!python/name:os.system\n",
    "duplicate.yaml": "defaults: [/smoke@_global_, _self_]\nmodel: {policy: {init_args: {hidden_size: 3}}}\n",
    "flat_trainer.yaml": "defaults: [/smoke@_global_, _self_]\ntrainer: 3\n",
    "list_suites.yaml": "defaults: [/smoke@_global_, _self_]\ndata:\n  suites: {name: a}\n",
    "list_policy.yaml": "defaults: [/smoke@_global_, _self_]\nmodel:\n  policy: [1, 2]\n",
    "list_arguments.yaml": "data:\n  env: {class_path: cod_lightning.envs.levers.Levers, init_args: [1], max_turns: 3}\n",
    "deep_value.yaml": "data:\n  env: {init_args: {max_turns: {a: 1}}}\n",
    "wrong_condition.yaml": "data:\n  suites: [{name: a, num_packs: 8, controls: [blankd_context]}]\n",
    "wrong_suite_key.yaml": "data:\n  suites: [{name: a, num_packs: 8, envv: levers}]\n",
    "text_default.yaml": "defaults: smoke\n",
    "own_default.yaml": "defaults: [own_default, _self_]\n",
    "twice.yaml": "model:\n  lr: 1.0e-3\n  lr: 2.0e-3\n",
    "holds_itself.yaml": "a: &x [*x]\n",
    "nowhere_value.yaml": "defaults: [/smoke@_global_, _self_]\nmodel:\n  lr: ${nowhere.at.all}\n",
    "two_documents.yaml": "model: {lr: 1}\n---\nmodel: {lr: 2}\n",
    "raises.py": "raise RuntimeError('no database')\n",
    "named_class.yaml": "defaults: [/recipe@_global_: tiny, _self_]\ndata:\n  env: {class: shop.Shop}\n",
    "nested_key.yaml": "model:\n  policy:\n    lr: 3\n",
}

QUICK = """
--confg
context
context revert 1 ## 1 | context revert --help
context log --state nowhere
context revert --state nowhere --version 1 ## --state | nowhere
context forget --state ada ## forget | revert
play
play --env levrs ## --env | levrs | Did you mean levers?
play --env levers --num_tasks 0
play --env levers --policy random --num_tasks 1000000000
play --env levers --policy robot
play --ckpt_path nowhere.ckpt
play --env levers ckpt_path=nowhere.ckpt
check ## --env | missing
check --env levers --num_packs 1
check --env nowhere.World ## nowhere.World
play --env faulty.Bilt ## faulty.Bilt
play --env levers --env.protocol natral ## natral | natural
play --env levers --policy oracel ## policy | oracel | oracle
report ## RUN_DIR | missing | runs/quickstart
report nowhere
report afile
sweep ## --config | missing
sweep --config nowhere credit=a,b ## --config | nowhere
sweep --config smoke credit=TaskCredit,nosuch --print_jobs ## credit | nosuch
sweep --config smoke warm_start.teacher.note_acuracy=0.3,0.5 --print_jobs ## Did you mean teacher.note_accuracy?
sweep --table nowhere
sweep --config smoke --results . ## --results | the names of two files
sweep --tabel nowhere ## --tabel | Did you mean table?
sweep --config smoke --lancher joblib credit=EpisodeCredit,TaskCredit ## --lancher | Did you mean launcher?
context revert --state nowhere ## version
play levers
play --env
play --env levers --nun_tasks 2 ## --nun_tasks | Did you mean num_tasks?
play --env levers --env.max_trns 3 ## Did you mean max_turns?
play --env levers --context notebok
play --env.max_turns 3
play --env raises.World ## raises.py:1 | no database
play --env half.Half ## half.Half | is abstract
check --env half.py ## half.py | my_file.MyWorld
worlds --env levers
sweep --config smoke creditt=episode,task --print_jobs ## creditt
sweep --config smoke model.lrr=1,2 --print_jobs ## --model.lrr=1
sweep --config smoke model.lr=interval(0,1) --print_jobs ## model.lr=interval(0,1) | does not support sweep type
sweep --config smoke seed_everything=a,b --print_jobs ## seed_everything | a
sweep --config smoke --model.lr 1,2 ## --model.lr
play --env cod_lightning.envs.gymnasium_world.GymnasiumWorld ## env | tasks
play --env cod_lightning.envs.mixture.Mixture
play --env cod_lightning.envs.ralph_loop.RalphLoop --env.world levrs
check --env os.path
sweep --config smoke trainer.default_root_dir=a,b --print_jobs ## trainer.default_root_dir=a | trainer.default_root_dir=b
sweep --config smoke seed_everything= --print_jobs ## seed_everything
fit --config smoke method=[grpo,rec] ## method | [grpo,rec] | method=grpo,rec
sweep --config smoke method=nft,sdpo loss=GRPO --print_jobs ## method=nft | method=sdpo
sweep --config smoke env.length_penalty=0,0.0 --print_jobs ## length_penalty=0 | length_penalty=0.0
sweep --config smoke --config quickstart credit=TaskCredit,EpisodeCredit --print_jobs ## --config | quickstart
sweep --config smoke seed_everything=1:3 --print_jobs ## seed_everything | 1:3
sweep --config smoke ckpt_path=a,b ## ckpt_path=a
play --env LEVERS ## env | LEVERS | Did you mean levers?
play --env '' ## --env | empty
play --env levers --context.max_chars 3 ## context | max_chars
fit --config Smoke ## Smoke | Did you mean smoke?
fit config=Smoke ## Smoke | Did you mean smoke?
fit --config smoke -credit task ## -credit | two dashes
SMOKE --data.env.stated first ## Option 'stated' is not accepted (
fit --config experiment/mixture env=doors ## env@data.env.init_args.worlds.alchemy | worlds.lake?
SMOKE --model.loss Reinforce ## model.loss | Reinforce (python
fit --config smoke credit=TaskCreditt ## model.credit | TaskCreditt | Did you mean TaskCredit?
fit --config smoke --seed_everythin 2 ## --seed_everythin | Did you mean seed_everything?
fit --config smoke loss=Gspo ## model.loss | Gspo | Did you mean GSPO?
fit --config smoke env='' ## env | empty
check --env levers --env.teacher.follow 7
check --env dataset --env.path no_prompt.jsonl ## 'prompt', the column of data.env.prompt; the file has ask, answer
check --env dataset --env.path no_group.jsonl ## or name another column (null: there are no groups).
check --env dataset --env.path empty.jsonl ## empty.jsonl | at least one row
fit --config list.yaml
fit --config wrong_key.yaml env=levers ## Name a config first
play --env faulty.Built ## faulty.py:7 | no database
play --env faulty.Drawn ## --env | Drawn | faulty.py:12
play --env faulty.Listed ## --env | Listed | faulty.py:17
play --env faulty.Compared --policy oracle ## --env | Compared | no database
play --env levers --context faulty.Notes ## faulty.py:32
"""
"""Commands that import no torch. A row names after ` ## ` what the answer must name, where that is not its last key and value."""
BUILT = """
fitt
doctor ## RUN_DIR | missing | runs/quickstart
fit ## --config | missing | quickstart
fit --config
fit --config broken.yaml
fit --config smoke --config wrong_key.yaml ## Did you mean model.lr?
fit --config smoke --config wrong_group.yaml ## modle.lr | wrong_group.yaml:2 | model.lr?
fit --config wrong_value.yaml ## model.lr | fast
fit --config wrong_class.yaml ## data.env | shop.Shop
fit --config no_such_default.yaml ## no_such_default.yaml | smokke | Did you mean smoke?
fit smoke
fit --help modle ## --help | modle | Did you mean model?
fit --help env ## --help | env | Did you mean data.env?
fit --model.loss.help Nowhere ## model.loss | Nowhere | fit --help
SMOKE --model.lrr 3
SMOKE model.lr
SMOKE --data.pack_size 1000000
SMOKE --data.group_size 1
SMOKE --data.packs_per_rollout 5 --data.updates_per_rollout 4
SMOKE --seed_everything -3
SMOKE --model.betas [1,2] ## model.betas | 2
SMOKE --model.scale big
SMOKE --model.policy.hidden_size 63
SMOKE --data.max_staleness 2 --data.resample_packs 1 ## data.max_staleness | resample_packs
SMOKE --data.suites [in_domian] ## data.suites | in_domian | Did you mean in_domain?
SMOKE --data.suites [broken.yaml] ## data.suites | broken.yaml
SMOKE --data.suites [list.yaml] ## list.yaml | one suite or a list
SMOKE --data.suites [suite.yaml] ## data.suites | num_packs | many
SMOKE --env levrs
SMOKE --data.env broken.yaml ## --data.env is broken.yaml
SMOKE env=raises.World ## raises.py:1 | no database
SMOKE env=faulty.Built ## faulty.py:7 | no database
SMOKE env=faulty.Listed ## data.env | Listed | faulty.py:17
SMOKE --data.context faulty.Notes ## faulty.py:32 | no database
SMOKE --data.context faulty.Shown ## data.context | Shown | faulty.py:37
SMOKE context=notebok_compact
SMOKE method=ciscpo
SMOKE loss=nft ## loss | nft | Did you mean method=nft?
SMOKE reward=length ## reward | data.rewards
SMOKE --warm_start warm_start/levers ## warm_start | warm_start/levers
SMOKE colour=red
SMOKE --data.engine vlm
SMOKE env=terminal_easy ## data.env | Terminal | 'Local' | words()
SMOKE --trainer.max_epochs 0.5
SMOKE --trainer.devices 7 ## data.packs_per_rollout | 7 ranks
SMOKE --trainer.accelerator cuda
SMOKE --trainer.accelerator gpu ## gpu backend
SMOKE --trainer.precision 7
SMOKE --trainer.gradient_clip_val 1
SMOKE --trainer.gradient_clip_algorithm value
SMOKE --trainer.default_root_dir afile
SMOKE --ckpt_path nowhere.ckpt
SMOKE --ckpt_path last
fit --config wrong_ky.yaml ## wrong_ky.yaml | Did you mean wrong_key.yaml?
fit --config named_class.yaml ## data.env
fit --config smoke --warm_start nowhere
fit --config smoke --data.enable_thinking true ## data.enable_thinking | --warm_start null
fit --config smoke --data.system_prompt Hello ## data.system_prompt | Hello | --warm_start null
fit --config smoke --data.max_new_tokens 5 ## data.max_new_tokens is 5 | Set it to 6 or more.
SMOKE --model.policy cod_lightning.models.PretrainedPolicy --model.policy.path Qwen/Nowhere-0.6B
SMOKE --model.policy cod_lightning.models.PretrainedPolicy --model.policy.path afile
SMOKE --model.policy cod_lightning.models.PretrainedPolicy --model.policy.path /no/such ## /no/such | none of this name
SMOKE --model.policy cod_lightning.models.PretrainedPolicy ## model.policy | path
SMOKE --data.rewards.judge JudgeReward ## data.rewards | rubric
SMOKE --data.rewards.format FormatRewrd ## data.rewards | FormatRewrd | Did you mean FormatReward?
play --env cod_lightning.envs.ralph_loop.RalphLoop --env.world cod_lightning.envs.dataset.DatasetWorld ## env | path
fit --config smoke model.policy=LoRAPolicy ## model.policy.path | null | warm_start.policy
fit --config experiment/endpoint ## data.engine | OpenAIEngine
TWO_OF [damaged.ckpt,damaged.ckpt] ## ckpt_path | different files
TWO_OF [damaged.ckpt,last] ## ckpt_path | different files
TWO_OF [] ## ckpt_path | different files
TWO_OF [c.ckpt,damaged.ckpt] ## ckpt_path is c.ckpt
test --ckpt_path [a.ckpt,b.ckpt] --config smoke ## ckpt_path | a.ckpt
export --config smoke ## out | required
export --ckpt_path last --out x ## --ckpt_path | last | runs/NAME
export --out x ## --config | missing
deploy ## --config | missing
deploy --config smoke ## required: state (python
deploy --config smoke --warm_start null --state afile
deploy --ckpt_path damaged.ckpt --state ada ## --ckpt_path | damaged.ckpt
SMOKE --trainer.max_steps -5
test --config smoke --warm_start null --trainer.limit_test_batches 0.5
SMOKE --trainer.val_check_interval 0
SMOKE --trainer.logger x
SMOKE --trainer.strategy nosuch
SMOKE --trainer.num_nodes 0
SMOKE --trainer.fast_dev_run true ## trainer.fast_dev_run | True
SMOKE --trainer.devices -3
SMOKE --data.suites {
SMOKE --data.env null ## data.env
SMOKE --data.seed 3 ## data.seed | seed_everything
SMOKE --model.terms [x]
SMOKE --model.betas 0.9,0.95 ## model.betas | 0.9,0.95
SMOKE --model.trained_kinds solve,update ## model.trained_kinds | solve,update
SMOKE source=Growth --data.source.num_tasks 2,4 ## num_tasks | 2,4
SMOKE --model null
SMOKE env=
fit --config quickstart model.policy=SentencePolicy ## data.env | FrozenLakeObscure | data.env.protocol
fit --config smoke env=frozen_lake_easy model.policy=SentencePolicy ## data.context | HintContext | data.context.protocol
fit --config smoke env=frozen_lake_easy ## data.env | FrozenLakeObscure | protocol to compact
SMOKE context=NotebookContext ## data.context | NotebookContext | words()
SMOKE --data.env.protocol natural ## data.env | Levers | 'Pull' | words()
SMOKE --warm_start
fit --config smoke --trainer.default_root_dir
fit --conifg smoke
fit --smoke
fit --config unknown_tag.yaml
fit --config duplicate.yaml ## model.policy.hidden_size | 3
fit --config experiment/one_80gb_lora_8b --model.policy.path /nowhere
test --config smoke --warm_start null --data.suites [in_domain
export --config smoke --out x ## ckpt_path | required
deploy --config nowhere --state ada ## --config | nowhere
SMOKE --config flat_trainer.yaml ## trainer | 3
SMOKE --config list_suites.yaml ## data.suites | {'name': 'a'}
SMOKE --config list_policy.yaml ## model.policy | [1, 2]
SMOKE --config deep_value.yaml ## max_turns
SMOKE --config list_arguments.yaml ## data.env
SMOKE --config wrong_condition.yaml ## blankd_context
SMOKE --config wrong_suite_key.yaml ## envv
SMOKE --config own_default.yaml
LAUNCH --servers 1 ## data.engine | TransformersEngine
LAUNCH --servers 2
LAUNCH strategy=fsdp2 --model.optimizer adamw_8bit
SMOKE --config text_default.yaml
SMOKE --config twice.yaml ## twice.yaml | lr | twice
SMOKE --config holds_itself.yaml
SMOKE --config nowhere_value.yaml ## nowhere.at.all
SMOKE --config two_documents.yaml
SMOKE hydra.run.dir=x ## hydra.run.dir=x
SMOKE -m
SMOKE ~model.lr
SMOKE --data.env os.system
SMOKE --model.policy cod_lightning.envs.levers.Levers
SMOKE --data.suites [in_domain,in_domain] ## data.suites | in_domain
SMOKE --data.suites [{num_packs:8}]
SMOKE --data.suites [{name:a/b,num_packs:8}]
SMOKE --trainer.default_root_dir '' ## trainer.default_root_dir | empty
SMOKE --trainer.num_nodes 2
SMOKE --trainer.strategy fsdp
SMOKE --trainer.strategy deepspeed ## trainer.strategy is deepspeed | strategy=fsdp2
SMOKE --model.lr [1e-3] ## model.lr | list
SMOKE --data.deadlines 5
SMOKE --seed_everything [1,2] ## seed_everything | 1, 2
SMOKE --ckpt_path ''
fit --config smoke quickstart ## quickstart
fit --config suite/in_domain ## name
test --config smoke --warm_start null --data.suites in_domain longer_packs ## longer_packs
fit --config smoke context=notebook_compact ## data.max_new_tokens | 8 | Set it to 17
warm_start --config smoke --warm_start null ## warm_start | null | --warm_start.num_updates
fit --config smoke warm_start=levers ## warm_start | levers
fit --config smoke --warm_start.num_update 3 ## Did you mean num_updates?
fit --config smoke --warm_start.env.max_trns 3 ## max_trns | max_turns
SMOKE env.teacher.note_acuracy=0 ## Did you mean teacher.note_accuracy?
SMOKE --lr 3 ## --lr | Did you mean model.lr?
SMOKE max_epochs=3 ## --max_epochs | Did you mean trainer.max_epochs?
SMOKE --model gpt2 ## model
SMOKE --model.path Qwen/Qwen3-0.6B ## --model.path
SMOKE --config nested_key.yaml ## model.policy | nested_key.yaml:3
SMOKE recipe=qwen3 ## model.policy
SMOKE suite=in_domain
test --ckpt_path damaged.ckpt ## --config
test --data.suites [in_domain] ## Name a config, as in --config quickstart.
plan --config smoke --gpu_gb 24 ## model.policy | TinyPolicy | a policy from a folder or the hub
deploy --config smoke --state ada --num_tasks -1 ## num_tasks
export --config smoke --warm_start null --ckpt_path nowhere.ckpt --out x ## ckpt_path | nowhere.ckpt
serve --config smoke ## data.engine is TransformersEngine
serve --config smoke engine=VLLMServerEngine ## VLLM_API_KEY | export VLLM_API_KEY=
launch --config smoke --nodes 2 --to nowhere ## nowhere
evolve --config smoke --warm_start null ## out | required
SMOKE --trainer.enable_checkpointing false ## trainer | enable_checkpointing | False
SMOKE --trainer.max_steps 0
test --config smoke --warm_start null --ckpt_path arun ## ckpt_path | arun | Did you mean arun/checkpoints/last.ckpt?
export --ckpt_path arun/checkpoints --out x ## --ckpt_path | arun/checkpoints | Did you mean arun/checkpoints/last.ckpt?
play --ckpt_path arun ## --ckpt_path | arun | Did you mean arun/checkpoints/last.ckpt?
test --config smoke --warm_start null --trainer.default_root_dir arun ## ckpt_path | null | arun | --ckpt_path last
validate --config smoke --warm_start null --trainer.limit_val_batches 0
sweep --config smoke model.lr=abc,def ## model.lr | abc
SMOKE --data.updates_per_rollout 5 ## data.packs_per_rollout | 32 | a multiple of 5
SMOKE --ckpt_path best
SMOKE --ckpt_path . ## .metadata
fit --config quickstart --data.env.size_max 9
fit --config quickstart --data.env.max_shortest_path 9 ## data.env.max_shortest_path | 9 | Lower it
"""
"""Commands that build parsers of Lightning, or more."""
SIGNALS = """
fit --config smoke engine=VLLMServerEngine --trainer.devices 2 --data.engine.local.devices ["3"] ## local.devices | 2 entries
WARM source=Growth --data.source.init_args.num_tasks [2,9] ## data.source.num_tasks | [2, 9] | data.pack_size
WARM --model.terms [{PATH:"TERMS.JSD",ARGS:{"to":"reference","beta":1.0}}] ## model.terms | beta | 1.0
WARM --model.terms [{PATH:"TERMS.JSD",ARGS:{}}] ## model.terms | teacher
WARM KL_TO_TEACHER {"teacher":{PATH:"SCORERS.CheckpointScorer",ARGS:{"path":"nowhere"}}} ## model.scorers.teacher.path | nowhere
WARM KL_TO_TEACHER BY_WORLD{"levers":{PATH:"SEES_MORE"}}}}} ## model.scorers.teachers.levers | PrivilegedScorer
WARM KL_TO_TEACHER {"teacher":{PATH:"SERVED.VLLMScorer",ARGS:{"url":"http://127.0.0.1:9","model":"m"}}} ## teacher.url | :9
WARM --data.rewards {"part":{PATH:"LEARNED.PartlyKnown",ARGS:{"transcripts":"nowhere"}}} ## PartlyKnown.transcripts | nowhere
WARM --data.rewards.pairs NoisyPairwiseJudge --data.rewards.pairs.opponents 3 ## data.rewards.NoisyPairwiseJudge.opponents | 3
WARM --data.rewards.pairs NoisyPairwiseJudge program=Anchored ## data.rewards.pairs | NoisyPairwiseJudge | data.program=Anchored
WARM PAIRWISE.rubric rubric.txt ## data.rewards.PairwiseJudge.rubric | rubric.txt
WARM PAIRWISE.rubric list.yaml ## data.rewards.PairwiseJudge.model
WARM PAIRWISE.rubric list.yaml --data.rewards.pairs.model m ## PairwiseJudge.base_url
WARM --data.rewards.judge JudgeReward --data.rewards.judge.rubric rubric.txt ## data.rewards.JudgeReward.rubric | rubric.txt
WARM --data.frozen.kind both ## data.frozen | both
WARM --data.frozen.kind solve --data.frozen.path nowhere --model.trained_kinds [update] ## data.frozen.path | nowhere
WARM --model.trained_kinds [sleep] ## model.trained_kinds | sleep
WARM --model.trained_kinds [write] ## model.trained_kinds | write
WARM --data.frozen.kind solve --model.trained_kinds [solve] ## model.trained_kinds | (update)
WARM program=ProposeAndSolve --data.program.solves 1 ## data.program | solves | 1
WARM program=ProposeAndSolve --data.program.solves 3 ## data.program.solves | 3 | data.pack_size
WARM program=ProposeAndSolve --data.program.solves 2 env=alchemy_compact ## data.program | Alchemy | program=ConnectTheDots
WARM program=ProposeAndSolve --data.rewards.use EntryUse ## data.rewards.use | EntryUse | ProposeAndSolve
WARM method=nft replay=SignalReplay ## data.replay | SignalReplay | model.loss
WARM --data.program Anchored baseline=Accepted ## data.program | Anchored | baseline=Accepted
"""
"""Of teachers, replay, curricula, judges, roles and rollouts ahead, each in a training that would begin with a warm start."""
_SHORT = {
    "SMOKE": "fit --config smoke --warm_start null",
    "WARM": "fit --config smoke",
    "KL_TO_TEACHER": '--model.terms [{PATH:"TERMS.KL",ARGS:{"to":"teacher"}}] --model.scorers',
    "BY_WORLD": '{"teacher":{PATH:"SCORERS.ScorerByWorld",ARGS:{"teachers":',
    "PATH": '"class_path"',
    "ARGS": '"init_args"',
    "TERMS": "cod_lightning.objective.terms",
    "SCORERS": "cod_lightning.training.scorers",
    "SERVED": "cod_lightning.training.vllm_scorer",
    "SEES_MORE": "cod_lightning.methods.privileged.PrivilegedScorer",
    "PAIRWISE": "--data.rewards.pairs PairwiseJudge --data.rewards.pairs",
    "LEARNED": "cod_lightning.methods.learned_reward",
    "LAUNCH": "launch --config smoke --nodes 2 --gpus 0 --warm_start null",
    "TWO_OF": "test --config smoke --warm_start null --ckpt_path",
}
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
    for short, long in _SHORT.items():
        usage = usage.replace(short, long)
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
    (folder / "taken.md").mkdir()
    (folder / "arun" / "checkpoints").mkdir(parents=True)
    (folder / "arun" / "checkpoints" / "last.ckpt").write_text("of a trained policy")

"""What the site has beside the pages in this folder: README as its home, the changes, and a reference of configs and classes."""

import ast
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CLASSES = {
    "keys": (
        "Keys of data and model",
        "After this page you know every key below `data` and `model`: the arguments of the four classes that a config builds.",
        (
            "cod_lightning.datamodules.RolloutDataModule",
            "cod_lightning.modules.GRPOModule",
            "cod_lightning.datamodules.DemonstrationDataModule",
            "cod_lightning.modules.WarmStartModule",
        ),
    ),
    "contracts": (
        "Contracts",
        "After this page you know what a class of your own has to have to take a place in a config.",
        (
            "cod_lightning.envs.base",
            "cod_lightning.envs.async_world.AsyncWorld",
            "cod_lightning.envs.task_world",
            "cod_lightning.envs.players",
            "cod_lightning.envs.dataset.scorers.AnswerScorer",
            "cod_lightning.contexts.base",
            "cod_lightning.lifecycles.base",
            "cod_lightning.rewards.base",
            "cod_lightning.training.packs",
            "cod_lightning.training.replay",
            "cod_lightning.training.critics.Critic",
            "cod_lightning.engines.base",
            "cod_lightning.models.base",
            "cod_lightning.objective.terms",
            "cod_lightning.training.scorers",
            "cod_lightning.evaluation.controls.Control",
        ),
    ),
    "objective": (
        "Objective",
        "After this page you know each credit rule, baseline, loss and correction with its formula and source.",
        (
            "cod_lightning.credit.returns",
            "cod_lightning.credit.baselines",
            "cod_lightning.credit.credited",
            *(f"cod_lightning.objective.losses.{one}" for one in ("base", "rec", "ppo", "reinforce")),
            "cod_lightning.objective.mismatch",
        ),
    ),
    "running": (
        "Records and running",
        "After this page you can play packs from Python, read what came of it, and keep an agent.",
        (
            "cod_lightning.types",
            "cod_lightning.rollout.setting",
            "cod_lightning.rollout.group",
            "cod_lightning.rollout.transcript",
            "cod_lightning.evaluation.references",
            "cod_lightning.deployment.agent",
            "cod_lightning.deployment.store",
        ),
    ),
}


_ARGUMENTS = "\n    options: {show_signature: false, members: false}"
"""Of classes whose arguments alone a page is about: their table has each with its type and default."""
SEAMS = {
    "PolicyLoss": "model.loss",
    "Baseline": "model.baseline",
    "Critic": "model.critic",
    "MismatchCorrection": "model.mismatch",
    "LossTerm": "an item of model.terms",
    "Divergence": "an item of model.terms",
    "Replay": "data.replay",
    "PackSource": "data.source",
    "RolloutBuffer": "data.max_staleness",
    "OtherPlayer": "data.frozen",
    "FreshWeights": "model.policy.start",
    "Program": "data.program",
    "_Attempted": "data.program",
    "Reward": "data.rewards.NAME",
    "SiblingReward": "data.rewards.NAME",
    "Pairwise": "data.rewards.NAME",
    "Scorer": "model.scorers.NAME",
    "NotebookContext": "data.context",
    "RecordContext": "data.context",
    "WordedContext": "data.context",
    "ContextMechanism": "data.context",
    "Evolution": "evolve",
}
"""Base class of a method, or its own name, -> the key that chooses it, or the command that runs it."""
WIDE = ("results/", "methods.md", "as_published.md", "reference/configs.md")
"""Pages of wide tables."""
CITED = re.compile(r"Sources?: (?P<source>.+?) (?:What differs|Differs(?: from [\w ]+)?): (?P<differs>.+)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made from elsewhere."""
    from mkdocs.structure.files import File  # tests read the tables without it

    pages = {"reference/configs.md": configs(), "methods.md": methods()}
    for name, page in (("README", "index"), ("CHANGELOG", "changes")):
        pages[f"{page}.md"] = (ROOT / f"{name}.md").read_text().replace("](docs/", "](")
    for name, (title, opening, classes) in CLASSES.items():
        options = _ARGUMENTS if name == "keys" else ""
        pages[f"reference/{name}.md"] = "\n\n".join(
            [f"# {title}", opening, *(f"::: {one}{options}" for one in classes)]
        )
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Name files of the project that are no page of the site, in place of a link to them; give wide tables the whole width."""
    if page.file.src_uri.startswith(WIDE):
        page.meta["hide"] = ["toc"]
    return re.sub(
        r"\[([^\]]*)\]\((?:(?:\.\./)*(?:examples|tests)/[^)]*|(?:\.\./)?(?:CONTRIBUTING\.md|CITATION\.cff))\)",
        r"\1",
        markdown,
    )


def methods() -> str:
    """A table of the methods: class, key, what it does, its source and what differs, as their docstrings say."""
    lines = [
        "# Methods",
        "",
        "After this page you know what papers add to a training, each in a file of its own under `cod_lightning/methods/`, with a "
        "test under `tests/methods/`.",
        "",
        "| class | chosen with | what it does | source | what differs |",
        "| --- | --- | --- | --- | --- |",
    ]
    for file in sorted((ROOT / "cod_lightning" / "methods").glob("[a-z]*.py")):
        module = ast.parse(file.read_text())
        for node in module.body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            names = (node.name, *map(ast.unparse, node.bases))
            key = next((SEAMS[name] for name in names if name in SEAMS), None)
            if key is None:
                continue
            own = ast.get_docstring(node) or ""
            every = [
                re.sub(r"\s+", " ", one)
                for text in (own, ast.get_docstring(module) or "")
                for one in text.split("\n\n")
            ]
            cited = next((found for one in every if (found := CITED.search(one))), None)
            if cited is None:
                raise ValueError(f"{file}: {node.name} does not say `Source: ... What differs: ...` in one paragraph")
            cells = (f"`{file.stem}.{node.name}`", f"`{key}`", every[0], cited["source"], cited["differs"])
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def configs() -> str:
    """A table of each group: name, class or keys, and the comment at the top of the file."""
    lines = [
        "# Configs",
        "",
        "After this page you know every shipped config. `--config NAME` takes those at the top and `experiment/NAME`, "
        "`group=NAME` the others. A class is chosen by its name, with no file: `credit=TaskCredit`, `source=Bandit`, "
        "`--model.loss NFT`. "
        "`--print_config` shows what a combination comes to.",
    ]
    folder = ROOT / "configs"
    for group in ["", *sorted(path.name for path in folder.iterdir() if path.is_dir())]:
        lines += ["", f"## {group or 'whole trainings'}", "", "| name | builds | about |", "| --- | --- | --- |"]
        for file in sorted((folder / group).glob("*.yaml")):
            text = file.read_text()
            about = " ".join(re.findall(r"^#(?! ?@package) ?(.*)", text.partition("\n\n")[0], re.MULTILINE)).replace(
                "|", "\\|"
            )
            content = yaml.safe_load(text)
            built = content.get("class_path", "") if isinstance(content, dict) else ""
            lines.append(f"| `{file.stem}` | {f'`{built}`' if built else ''} | {about} |")
    return "\n".join(lines) + "\n"

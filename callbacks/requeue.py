"""Has Slurm begin this job again."""

import os
import subprocess
import sys


def requeue() -> None:
    """`scontrol requeue` for the job, or for the task of a job array, that this process belongs to.

    Slurm then ends the job with a SIGTERM, so whatever is to be kept has been saved before.
    """
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    job = os.environ["SLURM_JOB_ID"] if array is None else f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    try:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, check=False)
        said = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        said = str(error)
    print(f"scontrol requeue {job}: {said or 'done'}", file=sys.stderr, flush=True)

"""PDE Discovery, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs.pde import PDEDiscovery
from cod_lightning.envs.pde.verdicts import CANDIDATES, PROBES
from tests.envs.case import Case

POINT = st.builds('<point x="{0}" t="{1}"/>'.format, st.floats(-0.1, 1.1), st.floats(-0.1, 1.1))
BODIES = st.one_of(
    st.builds("<sample_pde_data>{0}</sample_pde_data>".format, st.lists(POINT, max_size=3).map("".join)),
    st.sampled_from(
        [
            '<sample_pde_data><point x="0.5" t="0.02"/><point x="0.3" t="0"/></sample_pde_data>',
            "<run_sparse_regression><dictionary>all</dictionary></run_sparse_regression>",
            "<run_sparse_regression><candidate_equations>-1*u; 1*u - u**3</candidate_equations></run_sparse_regression>",
            "<summarize_pack_evidence/>",
            "<update_scientific_context><preferred_equation>-1*u</preferred_equation></update_scientific_context>",
        ]
    ),
    st.builds(
        "<run_sparse_regression><dictionary>{0}</dictionary></run_sparse_regression>".format, st.text(max_size=9)
    ),
)
ANSWERS = st.builds("{0}<answer>{1}</answer>".format, st.text(max_size=5), BODIES)
WORDS = st.sampled_from([*PROBES, *(f"f={word}" for word in CANDIDATES), "f=u", "x=9"])
COMPACT_ANSWERS = st.builds("<answer>{0}</answer>".format, WORDS)


def compact(**parameters) -> PDEDiscovery:
    """The small instance on a coarse grid."""
    small = {"protocol": "compact", "max_turns": 2, "noise_level": 0.004, "grid_points": 65, "time_levels": 401}
    return PDEDiscovery(**{**small, "world_memory": False, **parameters})


def natural(**parameters) -> PDEDiscovery:
    """On a coarse grid."""
    return PDEDiscovery(**{"grid_points": 65, "time_levels": 401, **parameters})


CASES = {
    "pde-natural": Case(lambda: natural(world_memory=False), ANSWERS),
    "pde-natural-hard": Case(
        lambda: natural(family="physical_full_eval_4000", max_terms=3, world_memory=False, show_samples=False), ANSWERS
    ),
    "pde-compact": Case(compact, COMPACT_ANSWERS, "compact"),
    "pde-compact-random": Case(lambda: compact(max_turns=3, point_budget=8), COMPACT_ANSWERS, "compact"),
}

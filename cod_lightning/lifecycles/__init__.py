"""Programs: the code that says which episode of a lifecycle comes next. Read `cod.py` first; it is the paper's figure."""

from cod_lightning.lifecycles.base import Agent as Agent
from cod_lightning.lifecycles.base import Ask as Ask
from cod_lightning.lifecycles.base import OutlineStep as OutlineStep
from cod_lightning.lifecycles.base import Program as Program
from cod_lightning.lifecycles.base import Shows as Shows
from cod_lightning.lifecycles.base import Written as Written
from cod_lightning.lifecycles.base import asks as asks
from cod_lightning.lifecycles.base import check_ends as check_ends
from cod_lightning.lifecycles.base import outline as outline
from cod_lightning.lifecycles.cod import ConnectTheDots as ConnectTheDots

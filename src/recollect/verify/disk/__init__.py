"""What power loss does to an engine, found without privileges and without pulling a plug.

recorder → log → durability model → crash images → states. Each arrow is one module:

`recorder`   loads the shim into an engine and reads its log       `shim/`, `building`, `visibility`,
`records`
`model`      base image + log → the disk at any moment             `image`, `nodes`
`states`     every distinct crash state of one run
`exploring`  each of them tried on the real engine                 `recovery`, `workspace`, `prestart/`, `explanation`
`selfcheck`  did the recorder see everything?
"""

from recollect.verify.disk.building import ShimUnavailableError, shim_path
from recollect.verify.disk.image import Base, Content, Image, TooLargeError, materialise, scan
from recollect.verify.disk.model import MODES, Mode, Model
from recollect.verify.disk.recorder import Faults, Recorder
from recollect.verify.disk.records import Flag, LogFullError, Op, Record
from recollect.verify.disk.selfcheck import Blindness, check_sight
from recollect.verify.disk.states import LEVELS, State, states
from recollect.verify.disk.visibility import cannot_see

__all__ = [
    "LEVELS",
    "MODES",
    "Base",
    "Blindness",
    "Content",
    "Faults",
    "Flag",
    "Image",
    "LogFullError",
    "Mode",
    "Model",
    "Op",
    "Record",
    "Recorder",
    "ShimUnavailableError",
    "State",
    "TooLargeError",
    "cannot_see",
    "check_sight",
    "materialise",
    "scan",
    "shim_path",
    "states",
]

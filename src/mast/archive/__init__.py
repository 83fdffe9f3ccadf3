"""Archives of any size: recordings anywhere, searched by processes of this machine or by a cluster."""

from mast.archive.crew import Crew, CrewEngine, Engine, OneProcess
from mast.archive.locations import Listing, Recording, list_recordings, search
from mast.archive.processes import ProcessCrew
from mast.archive.worker import DetectorFacts, DetectorSpec

__all__ = [
    "Crew",
    "CrewEngine",
    "DetectorFacts",
    "DetectorSpec",
    "Engine",
    "Listing",
    "OneProcess",
    "ProcessCrew",
    "Recording",
    "list_recordings",
    "search",
]

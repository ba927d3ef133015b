"""The event that a Workload leaves which is deleted before it is over: the record that lists of what ended show.

Kubernetes leaves out an empty message and a count of 0. A record is of the namespace in which its event is written: its
author chooses the rest, so an event about another namespace is malformed. Nothing of the engine is imported: every
command may read records.
"""

from msgspec import Struct, field

OWNER, RAN_FROM = "fairway.dev/owner", "fairway.dev/ran-from"


class Notes(Struct, frozen=True):
    """The annotations. `owner`: kind and name, with a slash; `ran_from`: a timestamp, or empty."""

    queue: str = field(default="", name="fairway.dev/queue")
    user: str = field(default="", name="fairway.dev/user")
    owner: str = field(default="", name=OWNER)
    ran_from: str = field(default="", name=RAN_FROM)


class About(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Meta(Struct, frozen=True):
    namespace: str = ""
    annotations: Notes = Notes()


class Record(Struct, frozen=True, rename="camel"):
    """`last_timestamp`: when it was deleted. ValueError where the namespaces differ."""

    metadata: Meta = Meta()
    involved_object: About = About()
    message: str = "cancelled"
    count: int = 0
    last_timestamp: str | None = None

    def __post_init__(self) -> None:
        own, found = self.metadata.namespace, self.involved_object.namespace
        if found != own:
            raise ValueError(f"involvedObject.namespace: found {found!r}; {own!r}, the event's, is allowed")

    @property
    def name(self) -> str:
        """The Workload's; of very many at once, which one event counts, how many they are."""
        return self.involved_object.name or f"({self.count} workloads)"

    @property
    def owner(self) -> tuple[str, str]:
        """Its kind and name; both are empty where it has none."""
        kind, _, name = self.metadata.annotations.owner.partition("/")
        return kind, name

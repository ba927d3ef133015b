"""The webhook's certificate: kept in a Secret that all replicas share, renewed in time, told to the API server.

Each replica looks every half minute. Where the Secret is absent, nearly over, or lacks a name by which the webhook is
called, one of them writes a new certificate with a new CA; whoever comes second reads it. The earlier CA stays in the
bundle, since another replica may serve the earlier certificate for another half minute. A Secret that cert-manager
made is only read, and a configuration into which it injects the CA is left to it.
"""

import base64
import logging
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fairway.kube import kinds
from fairway.kube.certificate import Served, is_good, make
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref

SECRET, CONFIGURATION = "fairway-webhook-tls", "fairway"
FILES = ("ca.crt", "tls.crt", "tls.key")
ISSUED_BY, INJECTED = "cert-manager.io/certificate-name", "cert-manager.io/inject-ca-from"
ANY = ("0.0.0.0", "::")
DAYS, LOOK_SECONDS, RETRY_SECONDS = 365, 30.0, 1.0
log = logging.getLogger(__name__)
Thing = dict[str, Any]


@dataclass(slots=True)
class Certificates:
    """`tls` serves whatever the Secret held last."""

    client: Client
    namespace: str
    host: str
    tls: ssl.SSLContext
    served: Served | None = None
    said: str = ""

    @property
    def ref(self) -> Ref:
        return Ref(kinds.SECRETS, SECRET, self.namespace)

    async def have(self) -> None:
        """Returns once there is one to serve."""
        while not await self._look():
            await self.client.rest(RETRY_SECONDS)

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            await self.client.rest(LOOK_SECONDS)
            await self._look()

    async def _look(self) -> bool:
        """Makes everything as it should be, as far as the API server lets it; whether there is something to serve. An
        API server trusts a new CA before anything is served by it."""
        try:
            configurations = await self._configurations()
            held = await self._held(self._names(configurations))
            if held and self.served is None:
                self._serve(held)
            for one in configurations if held else ():
                await self._tell(one, held.authority)
            if held and held != self.served:
                self._serve(held)
            self.said = ""
        except (ApiError, OSError, ssl.SSLError) as error:
            if str(error) != self.said and getattr(error, "status", 0) != 409:  # another replica did it
                log.warning("the webhook's certificate: %s; trying again", error)
            self.said = str(error)
        return self.served is not None

    def _serve(self, held: Served) -> None:
        held.load(self.tls)
        self.served = held

    def _names(self, configurations: list[Thing]) -> list[str]:
        """What the certificate is for: the Service, and the hosts by which the webhook is called from outside."""
        hooks = [hook for one in configurations for hook in one.get("webhooks") or ()]
        hosts = {urlsplit(hook["clientConfig"].get("url", "")).hostname for hook in hooks} | {self.host}
        return sorted({f"fairway-webhook.{self.namespace}.svc", *(it for it in hosts if it and it not in ANY)})

    async def _configurations(self) -> list[Thing]:
        both = kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS
        return [found for kind in both if (found := await self.client.find(Ref(kind, CONFIGURATION)))]

    async def _held(self, names: list[str]) -> Served | None:
        """What the Secret holds, renewed where it is not good."""
        secret = await self.client.find(self.ref)
        held = _read(secret)
        is_ours = ISSUED_BY not in (secret or {}).get("metadata", {}).get("annotations", {})
        if is_ours and not (held and is_good(held, names, now=self.client.clock.now())):
            return await self._renew(secret, held, names)
        return held

    async def _renew(self, secret: Thing | None, held: Served | None, names: list[str]) -> Served:
        """Writes over what was seen: of two replicas one is refused, and reads at its next look what is there."""
        made = make(names, now=self.client.clock.now(), days=DAYS)
        if held:
            made = Served(made.authority + _first(held.authority), made.certificate, made.key)
        parts = (made.authority, made.certificate, made.key)
        data = {name: base64.b64encode(text.encode()).decode() for name, text in zip(FILES, parts)}
        meta = {"name": SECRET, "namespace": self.namespace, "labels": {"app.kubernetes.io/name": "fairway"}}
        value = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data}
        if secret is None:
            await self.client.create(kinds.SECRETS, {**value, "metadata": meta})
        else:
            await self.client.update(self.ref, {**secret, "data": {**secret.get("data", {}), **data}})
        log.info("made a certificate for %s", ", ".join(names))
        return made

    async def _tell(self, configuration: Thing, authority: str) -> None:
        """The API server trusts the CA, unless cert-manager tells it."""
        bundle = base64.b64encode(authority.encode()).decode()
        hooks = configuration.get("webhooks") or []
        is_told = all(hook["clientConfig"].get("caBundle") == bundle for hook in hooks)
        if is_told or INJECTED in configuration["metadata"].get("annotations", {}):
            return
        for hook in hooks:
            hook["clientConfig"]["caBundle"] = bundle
        mutates = configuration["kind"].startswith("Mutating")
        kind = kinds.MUTATING_WEBHOOKS if mutates else kinds.VALIDATING_WEBHOOKS
        await self.client.update(Ref(kind, CONFIGURATION), configuration)


def _read(secret: Thing | None) -> Served | None:
    data = (secret or {}).get("data") or {}
    if any(name not in data for name in FILES):
        return None
    return Served(*(base64.b64decode(data[name]).decode(errors="replace") for name in FILES))


def _first(bundle: str) -> str:
    """The newest CA of a bundle."""
    end = "-----END CERTIFICATE-----\n"
    return bundle.partition(end)[0] + end if end in bundle else ""

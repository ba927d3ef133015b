"""Mail of the machine that a controller runs on: by its sendmail, else by its SMTP server. Commands ask here whether it
has either."""

import json
import shutil
import smtplib
import socket
import subprocess
from collections.abc import Mapping
from email.message import EmailMessage

PLACES = "/usr/sbin:/usr/lib:/usr/bin"  # where sendmail is looked for
SEND_SECONDS, MAIL_SECONDS = 5.0, 10.0
NO_MAIL = "this machine has no sendmail and no SMTP server"


def can_mail(*, places: str = PLACES, port: int = smtplib.SMTP_PORT) -> bool:
    """Whether `mail` finds a sendmail, or an SMTP server that takes connections."""
    try:
        if not shutil.which("sendmail", path=places):
            socket.create_connection(("localhost", port), timeout=SEND_SECONDS).close()
    except ConnectionError:
        return False
    return True


def mail(address: str, said: Mapping[str, object], *, places: str = PLACES, port: int = smtplib.SMTP_PORT) -> str:
    """By the sendmail in one of these places, else by the SMTP server of this machine; what went wrong, if anything."""
    message = EmailMessage()
    message["To"], message["Subject"] = address, f"{said['workload']} {said['event']}"
    message.set_content(f"{said['message'] or said['event']}\n\n{json.dumps(said, indent=2, ensure_ascii=False)}\n")
    if program := shutil.which("sendmail", path=places):
        done = subprocess.run([program, "-i", "--", address], input=bytes(message), timeout=MAIL_SECONDS, check=False)
        return f"sendmail exits with {done.returncode}" if done.returncode else ""
    try:
        with smtplib.SMTP("localhost", port, timeout=SEND_SECONDS) as server:
            message["From"] = "fairway@localhost"
            server.send_message(message)
    except ConnectionError:
        return NO_MAIL
    return ""

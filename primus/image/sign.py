"""Signatures of images and bundles: ECDSA on P-256 with SHA-256, in the form that cosign and skopeo know.

https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md has the payload and where a registry keeps it. What
`cosign sign --key` made verifies here, and what is made here verifies with `cosign verify --key`. The arithmetic is the
package `cryptography`'s, which only who signs or verifies needs: the extra `sign`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from primus.errors import ConfigError, ImageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

MEDIA_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
ANNOTATION = "dev.cosignproject.cosign/signature"
_TYPE = "cosign container image signature"
_ID = "io.primus.image-id"


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What was signed of an image, as it was signed, and the signature in base64."""

    payload: str
    signature: str


def tag(digest: str) -> str:
    """Where a repository keeps the signatures of a manifest."""
    return f"{digest.replace(':', '-')}.sig"


def payload(name: str, digest: str, identifier: str) -> str:
    """What is signed: the manifest's digest and, of our own, the image's ID, which is all that an engine may know."""
    document = {
        "critical": {
            "identity": {"docker-reference": name},
            "image": {"docker-manifest-digest": digest},
            "type": _TYPE,
        },
        "optional": {_ID: identifier},
    }
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def new_key(password: bytes) -> tuple[bytes, bytes]:
    """A private key, encrypted with the password, and its public one; both PEM."""
    _need()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public


def signed(private: bytes, password: bytes | None, content: bytes) -> str:
    """The signature in base64. Raises ConfigError for a key that is none, or another password."""
    _need()
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    return base64.b64encode(_private(private, password).sign(content, ec.ECDSA(SHA256()))).decode("ascii")


def check_key(public: bytes) -> None:
    """Raise ConfigError for a public key that is none."""
    _need()
    _public(public)


def is_signed(public: bytes, content: bytes, signature: str) -> bool:
    """Whether the key signed the content. Raises ConfigError for a key that is none."""
    _need()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    key = _public(public)
    try:
        key.verify(base64.b64decode(signature, validate=True), content, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def check_image(public: bytes, found: Signature | None, *, name: str, digest: str, identifier: str) -> str:
    """Raise ImageError unless the key signed this very image: its digest where it has one, else its ID.

    Returns the ID that the signature vouches for: "" if it is one of cosign's own, which name a digest alone.
    """
    hint = "take an image that is signed with this key, or have it signed: primus image sign"
    if found is None:
        raise ImageError(f"{name}: is not signed, and verify_key says that it must be", hint=hint)
    if not is_signed(public, found.payload.encode(), found.signature):
        raise ImageError(f"{name}: its signature is not by the key that verify_key names", hint=hint)
    about = _read(found.payload)
    signed = (about.get("critical") or {}).get("image") or {}
    its_digest = signed.get("docker-manifest-digest") or signed.get("Docker-manifest-digest") or ""
    its_id = (about.get("optional") or {}).get(_ID, "")
    if digest and its_digest != digest:
        raise ImageError(f"{name}: the signature is for {its_digest or 'nothing'}, and this is {digest}", hint=hint)
    if its_id and its_id != identifier:
        raise ImageError(f"{name}: the signature is for image {its_id}, and this is {identifier}", hint=hint)
    if not digest and not its_id:
        raise ImageError(f"{name}: the signature names a digest, and this image has lost its own", hint=hint)
    return str(its_id)


def _read(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _need() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigError(
            "signatures need the Python package cryptography", hint="pip install 'primus[sign]'"
        ) from None


def _private(text: bytes, password: bytes | None) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    if b"ENCRYPTED SIGSTORE" in text or b"ENCRYPTED COSIGN" in text:
        raise ConfigError(
            "the key is in cosign's own format",
            hint="sign with cosign: its signatures verify here; or make a key: primus image keygen",
        )
    try:
        key = serialization.load_pem_private_key(text, password)
    except TypeError as error:
        raise ConfigError(
            f"the key's password is {'missing' if password is None else 'given, and it has none'}",
            hint="set PRIMUS_SIGN_PASSWORD" if password is None else "unset PRIMUS_SIGN_PASSWORD",
        ) from error
    except ValueError as error:
        raise ConfigError(
            "the key cannot be read: another password, or no private key in PEM", hint="primus image keygen makes one"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("the key is none for ECDSA", hint="primus image keygen makes one")
    return key


def _public(text: bytes) -> EllipticCurvePublicKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_pem_public_key(text)
    except ValueError as error:
        raise ConfigError(
            "the public key cannot be read: it is no PEM", hint="name the .pub file of the key"
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError("the public key is none for ECDSA", hint="primus image keygen makes one")
    return key

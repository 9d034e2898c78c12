"""What is in an image, for scanners and auditors: CycloneDX, from what is really installed.

https://cyclonedx.org/docs/1.6/json/ by cyclonedx-python-lib (the extra `sbom`), which checks it against its schema. The
same image gives the same bytes: its serial number follows from the image's ID, its time is when the image was made.
"""

from __future__ import annotations

import email.parser
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from primus.errors import ConfigError, ImageError
from primus.image.content import Content
from primus.image.verification import inside_of, installed

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

_STATUS = "var/lib/dpkg/status"
_OS = "etc/os-release"


def need() -> None:
    """Raise ConfigError unless the library is here."""
    try:
        import cyclonedx  # noqa: F401
    except ImportError:
        raise ConfigError(
            "an SBOM needs the Python package cyclonedx-python-lib", hint="pip install 'primus[sbom]'"
        ) from None


def sbom(name: str, about: Mapping[str, Any], content: Content) -> str:
    """The document, as JSON, of the image that the engine describes so."""
    need()
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    inside = inside_of(content)
    said = {f"source:{source}": commit for source, commit in dict(inside.get("sources") or {}).items()}
    said |= {f"patch:{one['tree']}/{one['name']}": f"sha256:{one['sha256']}" for one in inside.get("patches") or ()}
    said |= {key: inside[key] for key in ("base_image", "lock_sha256") if key in inside}
    properties = [Property(name=f"primus:{key}", value=str(value)) for key, value in said.items()]
    root = Component(
        name=name,
        type=ComponentType.CONTAINER,
        version=str(inside.get("version", "")) or None,
        bom_ref="image",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=about["Id"].removeprefix("sha256:"))],
        properties=properties,
    )
    made = datetime.fromisoformat(re.sub(r"(\.\d+)?Z?$", "", str(about["Created"])[:26]) + "+00:00")
    components = [*_python(content), *_debian(content)]
    document = Bom(
        components=components,
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, about["Id"]),
        metadata=BomMetaData(component=root, timestamp=made),
    )
    document.register_dependency(root, components)
    text = make_outputter(document, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        raise ImageError(f"{name}: the SBOM does not fit its schema: {wrong}")
    return text + "\n"


def _python(content: Content) -> Iterator[Component]:
    """https://github.com/package-url/purl-spec/blob/main/types-doc/pypi-definition.md has the name's form."""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    for name, version, folder in sorted(installed(content)):
        purl = PackageURL("pypi", None, re.sub(r"[-_.]+", "-", name).lower(), version)
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=f"{purl}#{folder}",
            licenses=_licenses(content, folder),
        )


def _licenses(content: Content, folder: str) -> list[Any]:
    """An SPDX expression where the package has one."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.license import LicenseExpression

    text = content.kept.get(f"{folder}/METADATA") or content.kept.get(f"{folder}/PKG-INFO") or b""
    about = email.parser.HeaderParser().parsestr(text.decode("utf-8", "replace"))
    said = about.get("License-Expression")
    if not said:
        return []
    found = LicenseFactory().make_from_string(str(said))
    return [found] if isinstance(found, LicenseExpression) or getattr(found, "id", None) else []


def _debian(content: Content) -> Iterator[Component]:
    """https://github.com/package-url/purl-spec/blob/main/types-doc/deb-definition.md"""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    vendor, release = _os(content)
    for about in packages(content):
        qualifiers = {"arch": about["Architecture"], **({"distro": release} if release else {})}
        purl = PackageURL("deb", vendor, about["Package"], about["Version"], qualifiers)
        yield Component(
            name=about["Package"],
            version=about["Version"],
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=str(purl),
        )


def _os(content: Content) -> tuple[str, str]:
    """The distribution's name, and its release as scanners know it: debian, debian-12."""
    text = (content.kept.get(_OS) or content.kept.get(f"usr/lib/{_OS.partition('/')[2]}") or b"").decode()
    said = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
    vendor = said.get("ID", "debian")
    return vendor, f"{vendor}-{said['VERSION_ID']}" if "VERSION_ID" in said else ""


def packages(content: Content) -> list[dict[str, str]]:
    """The fields of each Debian package that is installed, by name: https://www.debian.org/doc/debian-policy/ch-controlfields"""
    found = []
    for paragraph in content.kept.get(_STATUS, b"").decode("utf-8", "replace").split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            found.append(fields)
    return sorted(found, key=lambda one: (one["Package"], one["Architecture"]))

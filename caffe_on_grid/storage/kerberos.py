"""Who we are to Kerberos, by the system's own libraries (MIT's libgssapi_krb5 and libkrb5): no package is needed.

A ticket comes from the credential cache ($KRB5CCNAME, whatever its kind), or is fetched by the keytab that
$KRB5_CLIENT_KTNAME names and renewed from it for as long as a process asks.
"""

from __future__ import annotations

import base64
import ctypes
import os
import time
from ctypes import POINTER, byref, c_char, c_int, c_int32, c_size_t, c_uint, c_uint32, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

from caffe_on_grid.errors import SecurityFault

_INITIATE = 1
_ERRORS = 0xFFFF0000
_EXPIRED = 11 << 16


@dataclass(frozen=True)
class Ticket:
    """A ticket that is valid now."""

    principal: str
    ends: float
    """Seconds since 1970, as are all times here."""
    renewable_until: Optional[float] = None

    @property
    def user(self) -> str:
        """The first part of the principal: the user's name on the cluster, as Hadoop's default rule has it."""
        return self.principal.partition("@")[0].partition("/")[0]


class _Bytes(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", c_void_p))


class _Key(ctypes.Structure):
    _fields_ = (("magic", c_int32), ("kind", c_int32), ("length", c_uint), ("contents", c_void_p))


class _Credentials(ctypes.Structure):
    """krb5_creds, as far as its times; the rest is room for what the library writes."""

    _fields_ = (
        ("magic", c_int32),
        ("client", c_void_p),
        ("server", c_void_p),
        ("key", _Key),
        ("authenticated", c_int32),
        ("starts", c_int32),
        ("ends", c_uint32),
        ("renewable_until", c_uint32),
        ("rest", c_char * 256),
    )


def available() -> bool:
    """Whether this machine has Kerberos' libraries."""
    return _gss() is not None and _krb5() is not None


def ticket() -> Ticket:
    """Our ticket; SecurityFault, with the library's words, where there is none or it has ended."""
    gss = _loaded()
    minor, credential, name, life = c_uint32(), c_void_p(), c_void_p(), c_uint32()
    status = gss.gss_acquire_cred(byref(minor), None, 0, None, _INITIATE, byref(credential), None, None)
    _check(status, minor)
    try:
        status = gss.gss_inquire_cred(byref(minor), credential, byref(name), byref(life), None, None)
        if status == _EXPIRED or (not status & _ERRORS and not life.value):
            raise SecurityFault("the ticket has ended")
        _check(status, minor)
        principal = _displayed(name)
    finally:
        gss.gss_release_name(byref(minor), byref(name))
        gss.gss_release_cred(byref(minor), byref(credential))
    return Ticket(principal, time.time() + life.value, _renewable_until())


def user() -> Optional[str]:
    """Our name on the cluster; None where nothing proves it."""
    return _user(os.getpid(), os.environ.get("KRB5CCNAME"), os.environ.get("KRB5_CLIENT_KTNAME"))


@lru_cache(maxsize=8)
def _user(_process: int, _cache: Optional[str], _keytab: Optional[str]) -> Optional[str]:
    try:
        return ticket().user
    except SecurityFault:
        return None


def negotiate(host: str) -> str:
    """What a request to a web server on `host` says under "Authorization" (SPNEGO); SecurityFault without a ticket."""
    ticket()
    gss = _loaded()
    minor, target, context, token = c_uint32(), c_void_p(), c_void_p(), _Bytes()
    text = f"HTTP@{host}".encode()
    service = _Bytes(len(text), ctypes.cast(ctypes.create_string_buffer(text), c_void_p))
    by_host = ctypes.cast(c_void_p.in_dll(gss, "GSS_C_NT_HOSTBASED_SERVICE"), c_void_p)
    _check(gss.gss_import_name(byref(minor), byref(service), by_host, byref(target)), minor)
    try:
        status = gss.gss_init_sec_context(
            byref(minor),
            None,
            byref(context),
            target,
            byref(_spnego()),
            0,
            0,
            None,
            None,
            None,
            byref(token),
            None,
            None,
        )
        _check(status, minor)
        return "Negotiate " + base64.b64encode(_taken(token)).decode()
    finally:
        gss.gss_delete_sec_context(byref(minor), byref(context), None)
        gss.gss_release_name(byref(minor), byref(target))


def _spnego() -> _Oid:
    elements = ctypes.create_string_buffer(b"\x2b\x06\x01\x05\x05\x02", 6)
    oid = _Oid(6, ctypes.cast(elements, c_void_p))
    oid.kept = elements
    return oid


def _check(status: int, minor: c_uint32) -> None:
    if status & _ERRORS:
        raise SecurityFault(_words(minor.value, 2) or _words(status, 1))


def _words(code: int, kind: int) -> str:
    """The library's text for a status: of Kerberos (`kind` 2), of GSSAPI (1)."""
    minor, more, text = c_uint32(), c_uint32(), _Bytes()
    _loaded().gss_display_status(byref(minor), c_uint32(code), kind, None, byref(more), byref(text))
    return _taken(text).decode(errors="replace")


def _displayed(name: c_void_p) -> str:
    minor, text = c_uint32(), _Bytes()
    _check(_loaded().gss_display_name(byref(minor), name, byref(text), None), minor)
    return _taken(text).decode()


def _taken(found: _Bytes) -> bytes:
    content = ctypes.string_at(found.value, found.length) if found.value else b""
    _loaded().gss_release_buffer(byref(c_uint32()), byref(found))
    return content


def _renewable_until() -> Optional[float]:
    """Of the ticket-granting ticket in the cache; None where it cannot be renewed."""
    krb5 = _krb5()
    context = c_void_p()
    if krb5 is None or krb5.krb5_init_context(byref(context)):
        return None
    try:
        return max(_renewals(krb5, context), default=0) or None
    finally:
        krb5.krb5_free_context(context)


def _renewals(krb5: Any, context: c_void_p) -> list[int]:
    cache, cursor, found = c_void_p(), c_void_p(), []
    if krb5.krb5_cc_default(context, byref(cache)):
        return []
    if not krb5.krb5_cc_start_seq_get(context, cache, byref(cursor)):
        credentials = _Credentials()
        while not krb5.krb5_cc_next_cred(context, cache, byref(cursor), byref(credentials)):
            found.append(int(credentials.renewable_until))
            krb5.krb5_free_cred_contents(context, byref(credentials))
        krb5.krb5_cc_end_seq_get(context, cache, byref(cursor))
    krb5.krb5_cc_close(context, cache)
    return found


def _loaded() -> Any:
    found = _gss()
    if found is None:
        raise SecurityFault("no Kerberos on this machine: libgssapi_krb5.so.2 is missing (libgssapi-krb5-2, krb5-libs)")
    return found


@lru_cache(maxsize=1)
def _gss() -> Any:
    return _library("libgssapi_krb5.so.2", _GSS)


@lru_cache(maxsize=1)
def _krb5() -> Any:
    return _library("libkrb5.so.3", _KRB5)


_P, _U, _BUFFER = POINTER(c_void_p), POINTER(c_uint32), POINTER(_Bytes)
_GSS: dict[str, list[Any]] = {
    "gss_acquire_cred": [_U, c_void_p, c_uint32, c_void_p, c_int, _P, c_void_p, c_void_p],
    "gss_inquire_cred": [_U, c_void_p, _P, _U, c_void_p, c_void_p],
    "gss_release_cred": [_U, _P],
    "gss_import_name": [_U, _BUFFER, c_void_p, _P],
    "gss_release_name": [_U, _P],
    "gss_display_name": [_U, c_void_p, _BUFFER, c_void_p],
    "gss_display_status": [_U, c_uint32, c_int, c_void_p, _U, _BUFFER],
    "gss_release_buffer": [_U, _BUFFER],
    "gss_delete_sec_context": [_U, _P, c_void_p],
    "gss_init_sec_context": [
        *(_U, c_void_p, _P, c_void_p, POINTER(_Oid), c_uint32, c_uint32),
        *(c_void_p, c_void_p, c_void_p, _BUFFER, c_void_p, c_void_p),
    ],
}
_KRB5: dict[str, list[Any]] = {
    "krb5_init_context": [_P],
    "krb5_free_context": [c_void_p],
    "krb5_cc_default": [c_void_p, _P],
    "krb5_cc_close": [c_void_p, c_void_p],
    "krb5_cc_start_seq_get": [c_void_p, c_void_p, _P],
    "krb5_cc_next_cred": [c_void_p, c_void_p, _P, POINTER(_Credentials)],
    "krb5_cc_end_seq_get": [c_void_p, c_void_p, _P],
    "krb5_free_cred_contents": [c_void_p, POINTER(_Credentials)],
}


def _library(name: str, functions: dict[str, list[Any]]) -> Any:
    """A library with its functions' types told; None where it is missing."""
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    for function, types in functions.items():
        getattr(library, function).argtypes = types
        getattr(library, function).restype = c_uint32 if function.startswith("gss") else c_int32
    return library

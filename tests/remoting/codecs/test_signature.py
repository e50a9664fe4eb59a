"""Signatures of ACL 1 and 2."""

import base64
import hashlib
import hmac

from popmq_remoting.wire.command import Request
from popmq_remoting.wire.signature import Credentials, signature, signed


def test_the_values_are_signed_in_the_order_of_their_names_and_then_the_body() -> None:
    made = signature({"topic": "t", "a": "1", "Signature": "old", "B": "ü"}, b"body", "secret")
    plain = "ü1t".encode() + b"body"  # B before a: by the bytes of the names
    assert made == base64.b64encode(hmac.new(b"secret", plain, hashlib.sha1).digest()).decode()


def test_a_signed_request_names_its_user_and_signs_that_name_too() -> None:
    request = Request(105, {"topic": "t"}, b"x")
    made = signed(request, Credentials("user", "secret", "token"))
    assert made.fields["AccessKey"] == "user"
    assert made.fields["SecurityToken"] == "token"
    without = {name: value for name, value in made.fields.items() if name != "Signature"}
    assert made.fields["Signature"] == signature(without, b"x", "secret")
    assert request.fields == {"topic": "t"}


def test_a_field_that_is_changed_on_the_way_has_another_signature() -> None:
    fields = {"topic": "t", "AccessKey": "user"}
    assert signature(fields, b"", "s") != signature(fields | {"topic": "u"}, b"", "s")
    assert signature(fields, b"", "s") != signature(fields, b"x", "s")


def test_no_secret_is_in_a_text_about_credentials() -> None:
    shown = repr(Credentials("user", "hidden", "concealed"))
    assert "user" in shown
    assert "hidden" not in shown
    assert "concealed" not in shown

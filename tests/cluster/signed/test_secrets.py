"""The secrets of the gateways: what is signed with them, and the file that has them."""

import base64
import itertools
import pathlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_server.cluster.signed.secrets import (
    QUIET_S,
    SIGNATURE_BYTES,
    BadText,
    Secrets,
    UnknownSecret,
    random_secrets,
    read_secrets,
)
from popmq_server.errors import StartError

OLD, NEW = b"the old secret of the gateways", b"the new secret of the gateways"


def written(folder: pathlib.Path, text: str, mode: int = 0o600) -> pathlib.Path:
    path = folder / "handle-secret"
    path.write_text(text)
    path.chmod(mode)
    return path


@given(st.binary(min_size=1, max_size=60), st.binary(max_size=20))
def test_what_was_signed_is_read_by_a_gateway_with_the_same_secret(content: bytes, scope: bytes) -> None:
    text = Secrets([OLD]).sign(b"kind", content, scope).decode()
    assert Secrets([OLD]).open(b"kind", text, scope) == content
    assert text.replace("-", "").replace("_", "").isalnum()


@given(st.binary(min_size=1, max_size=20), st.binary(max_size=20), st.data())
def test_no_byte_passes_from_the_content_to_the_scope(content: bytes, scope: bytes, data: st.DataObject) -> None:
    """A reader of another group must not read a handle whose topic has lost its end."""
    secrets = Secrets([OLD])
    raw = base64.urlsafe_b64decode(secrets.sign(b"kind", content, scope) + b"==")
    cut = data.draw(st.integers(1, len(content)))
    shorter = raw[: -SIGNATURE_BYTES - cut] + raw[-SIGNATURE_BYTES:]
    with pytest.raises(BadText):
        secrets.open(b"kind", base64.urlsafe_b64encode(shorter).rstrip(b"=").decode(), content[-cut:] + scope)
    with pytest.raises(BadText):
        secrets.open(b"kind", secrets.sign(b"kind", content, scope).decode(), scope + b"x")


def test_a_text_of_one_kind_is_not_read_as_one_of_another() -> None:
    secrets = Secrets([OLD])
    with pytest.raises(BadText):
        secrets.open(b"other", secrets.sign(b"kind", b"content").decode())


@given(st.binary(min_size=1, max_size=30), st.data())
def test_a_text_with_any_character_changed_is_refused(content: bytes, data: st.DataObject) -> None:
    secrets = Secrets([OLD])
    text = secrets.sign(b"kind", content).decode()
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("AZaz09-_!é").filter(lambda each: each != text[at]))
    try:
        found = secrets.open(b"kind", text[:at] + other + text[at + 1 :])
    except BadText:
        return
    # Bits of the last character that no byte uses may differ, as in any base64.
    assert (found, at) == (content, len(text) - 1)


@given(st.text(max_size=200))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadText):
        Secrets([OLD]).open(b"kind", text)


@pytest.mark.parametrize("length", range(1, 7))
def test_of_the_texts_that_are_read_as_the_same_bytes_only_the_signed_one_is_accepted(length: int) -> None:
    secrets = Secrets([OLD])
    text = secrets.sign(b"kind", b"c" * length).decode()
    assert secrets.open(b"kind", text) == b"c" * length
    for last in string.ascii_letters + string.digits + "-_":
        if last != text[-1]:
            with pytest.raises(BadText):
                secrets.open(b"kind", text[:-1] + last)


def test_while_secrets_rotate_all_gateways_read_each_others_texts() -> None:
    steps = [Secrets([OLD]), Secrets([OLD, NEW]), Secrets([NEW, OLD]), Secrets([NEW])]
    for before, after in itertools.pairwise(steps):
        for signing, reading in ((before, after), (after, before)):
            assert reading.open(b"kind", signing.sign(b"kind", b"content").decode()) == b"content"


def test_a_text_of_another_secret_is_told_from_a_damaged_one_and_counted() -> None:
    secrets = Secrets([NEW])
    with pytest.raises(UnknownSecret, match="another secret"):
        secrets.open(b"kind", Secrets([OLD]).sign(b"kind", b"content").decode())
    with pytest.raises(BadText):
        secrets.open(b"kind", secrets.sign(b"kind", b"content").decode() + "AAAA")
    assert secrets.unknown == 1


def test_the_log_says_once_a_minute_that_texts_name_another_secret_and_what_to_do(
    caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    now_s = 5.0
    secrets = Secrets([NEW], "name the same file", lambda: now_s)
    text = Secrets([OLD]).sign(b"kind", b"content").decode()

    def opened(times: int) -> list[str]:
        caplog.clear()
        for _ in range(times):
            with pytest.raises(UnknownSecret):
                secrets.open(b"kind", text)
        return caplog.messages

    said = "handles or transaction ids refused, of a secret that is not here: {}; name the same file"
    assert opened(3) == [said.format(1)]
    now_s += QUIET_S - 0.1
    assert opened(40) == []
    now_s += 0.1
    assert opened(2) == [said.format(43)]
    file = tmp_path / "handles"
    file.write_text("a secret of this gateway\n")
    file.chmod(0o600)
    secrets.replace(read_secrets(file))
    now_s += QUIET_S
    assert [str(file) in line for line in opened(1)] == [True]


def test_a_process_without_a_file_reads_only_what_it_signed_itself() -> None:
    one, other = random_secrets(), random_secrets()
    text = one.sign(b"kind", b"content").decode()
    assert one.open(b"kind", text) == b"content"
    with pytest.raises(UnknownSecret):
        other.open(b"kind", text)


def test_a_file_has_one_secret_or_two_and_comments(tmp_path: pathlib.Path) -> None:
    text = f"# since May\n{NEW.decode()}\n\n{OLD.decode()}\n"
    secrets = read_secrets(written(tmp_path, text))
    assert secrets.open(b"kind", Secrets([OLD]).sign(b"kind", b"content").decode()) == b"content"
    assert secrets.sign(b"kind", b"content") == Secrets([NEW]).sign(b"kind", b"content")


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("", 0o600, "has 0 secrets"),
        ("a" * 16 + "\n" + "b" * 16 + "\n" + "c" * 16, 0o600, "has 3 secrets"),
        ("a" * 15, 0o600, "fewer than 16 characters: openssl rand -hex 32"),
        ("a" * 16 + "\n" + "a" * 16, 0o600, "the same secret twice"),
        ("a" * 16, 0o644, r"others may read .* \(mode 644\): chmod 600"),
    ],
)
def test_a_file_that_does_not_serve_says_what_to_do_and_no_secret(
    tmp_path: pathlib.Path, text: str, mode: int, says: str
) -> None:
    with pytest.raises(StartError, match=says) as refused:
        read_secrets(written(tmp_path, text, mode))
    assert "aaaa" not in str(refused.value)


def test_a_file_that_is_missing_or_no_text_names_the_option(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StartError, match="--handle-secret"):
        read_secrets(tmp_path / "none")
    path = written(tmp_path, "")
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(StartError, match="is not UTF-8"):
        read_secrets(path)

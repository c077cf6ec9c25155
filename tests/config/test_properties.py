"""Java's .properties files: the corners of the format, and files that cannot be read."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas.config.properties import FILE_BYTES_MAX, MalformedProperties, load_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1\nb=2", {"a": "1", "b": "2"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("  # comment\n! comment\n\n\t\na = 1", {"a": "1"}),
        ("a:1\nb 2\nc\t:\f3\nd", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("a = b=c:d ", {"a": "b=c:d "}),
        ("=x", {"": "x"}),
        ("a==1", {"a": "=1"}),
        ("a=1,\\\n   2,\\\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("# a comment is not continued\\\na=1", {"a": "1"}),
        ("a=back\\\\\nb=2", {"a": "back\\", "b": "2"}),
        ("a=three\\\\\\\n  more", {"a": "three\\more"}),
        ("a=end\\", {"a": "end"}),
        ("\\\na=1", {"a": "1"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\t\\n\\r\\f\\q\\#", {"a": "\t\n\r\fq#"}),
        ("a=\\u00e9\\uD83D\\uDE00", {"a": "é😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("log.dirs=/a,/b", {"log.dirs": "/a,/b"}),
        ("a=\x0b1\x85", {"a": "\x0b1\x85"}),
    ],
)
def test_a_text_becomes_keys_and_values(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("escape", ["\\u12", "\\u12G4", "\\u", "\\u\uff11\uff12\uff13\uff14", "\\u+123"])
def test_a_broken_escape_names_file_and_line(escape: str) -> None:
    with pytest.raises(MalformedProperties, match=r"server\.properties: line 3: .*four hexadecimal"):
        parse_properties(f"a=1\n\nb={escape}\n", source="server.properties")


def test_a_file_is_read_as_utf_8_or_else_as_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("\ufeffbroker.rack=Zürich".encode())
    assert load_properties(path) == {"broker.rack": "Zürich"}
    path.write_bytes("broker.rack=Zürich".encode("latin-1"))
    assert load_properties(path) == {"broker.rack": "Zürich"}


def test_a_missing_or_giant_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MalformedProperties, match=r"absent\.properties: No such file"):
        load_properties(tmp_path / "absent.properties")
    path = tmp_path / "giant.properties"
    path.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(MalformedProperties, match=r"giant\.properties: more than"):
        load_properties(path)


JAVA_ORACLE = """
import java.io.*; import java.nio.charset.StandardCharsets; import java.util.*;
public class Oracle {
    static String hex(String text) throws Exception {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_16BE));
    }
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            Properties properties = new Properties();
            properties.load(new ByteArrayInputStream(HexFormat.of().parseHex(line)));
            StringBuilder out = new StringBuilder();
            for (String key : new TreeSet<>(properties.stringPropertyNames()))
                out.append(hex(key)).append('=').append(hex(properties.getProperty(key))).append(' ');
            System.out.println(out.toString().trim());
        }
    }
}
"""


@pytest.mark.slow
def test_random_texts_read_as_java_reads_them(tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("needs Java 17: reads the same texts with java.util.Properties")
    rng = random.Random(20)
    pieces = ["a", "b", "=", ":", " ", "\t", "\f", "\\", "\n", "\r\n", "\r", "#", "!", "\\u0041", "é"]
    texts = ["".join(rng.choices(pieces, k=rng.randrange(1, 14))) for _ in range(5000)]
    source = tmp_path / "Oracle.java"
    source.write_text(JAVA_ORACLE)
    answer = subprocess.run(
        [java, "-Xmx64m", "-XX:+UseSerialGC", str(source)],
        input="\n".join(text.encode("latin-1").hex() for text in texts),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "HexFormat" in answer.stderr:
        pytest.skip("needs Java 17: this Java is older")
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.split("\n")[: len(texts)]
    for text, line in zip(texts, lines, strict=True):
        expected = {}
        for pair in line.split():
            key, _, value = pair.partition("=")
            expected[bytes.fromhex(key).decode("utf-16-be")] = bytes.fromhex(value).decode("utf-16-be")
        # A backslash before the end of the file makes an empty key in Java; no setting has that name.
        read = parse_properties(text)
        assert {**read, "": ""} == {**expected, "": ""}, repr(text)

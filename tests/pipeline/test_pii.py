from __future__ import annotations

import pytest

from pipeline.pii import mask_emails, mask_ips, mask_url_secrets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("o'neil@x.example 'a@x.example' <b.c+d@sub.x.example>.", "[EMAIL] '[EMAIL]' <[EMAIL]>."),
        ("mailto:a@x.example?subject=hi", "[EMAIL]?subject=hi"),
        ("MAILTO:A@X.EXAMPLE,b@x.example;c@x.example", "[EMAIL],[EMAIL];[EMAIL]"),
        ("联系abc@qq.com或者", "联系[EMAIL]或者"),
        ("ติดต่อabc@x.exampleครับ", "ติดต่อ[EMAIL]ครับ"),
        ("müller@bücher.de иван@почта.ru?", "[EMAIL] [EMAIL]?"),
        ("root@192.168.0.1", "[EMAIL]"),
        ("a＠x.example", "[EMAIL]"),
        ("@user a @ b, 5@3 p@ss x@localhost me@home. See", None),
        ("left@right and @media(x)", None),
    ],
)
def test_mask_emails(text, expected):
    assert mask_emails(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ftp://u:p@ss@x.example/a", "ftp://[SECRET]@x.example/a"),
        ("https://tok@[::1]:80/", "https://[SECRET]@[::1]:80/"),
        ("https://x.example/@user?id=a@b", None),
        ("x.example/r?access_token=a.b-c&lang=de#session=1",
         "x.example/r?access_token=[SECRET]&lang=de#session=[SECRET]"),
        ("(see x.example?API-Key=abc).", "(see x.example?API-Key=[SECRET])."),
        ("x.example/a;jsessionid=AB12?x=1", "x.example/a;jsessionid=[SECRET]?x=1"),
        ("?X-Amz-Signature=f0&X-Amz-Date=2026", "?X-Amz-Signature=[SECRET]&X-Amz-Date=2026"),
        ("a=1 token=x ?monkey=1&tokens=2 key = 5", None),
        ("?token=[SECRET].", None),
    ],
)  # fmt: skip
def test_mask_url_secrets(text, expected):
    assert mask_url_secrets(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.12, (172.16.254.1) 8.8.8.88:53 192.168.1.0/24", "[IP], ([IP]) [IP]:53 [IP]/24"),
        ("地址10.0.0.12在", "地址[IP]在"),
        ("fe80::1ff:fe23:4567:890a%eth0", "[IP]"),
        ("::ffff:192.0.2.128 and 2001:DB8:0:0:8:800:200C:417A: ok", "[IP] and [IP]: ok"),
        ("1.2.3.4 256.1.1.10 1.2.3 1.2.3.40.5 v10.0.0.1 01.23.45.67", None),
        ("Version 10.0.19.1, firmware: 12.34.56.78, Chrome 99.0.48.51", None),
        ("00:1A:2B:3C:4D:5E 10:20:30 a::b std::map::at ::1 12::30", None),
    ],
)
def test_mask_ips(text, expected):
    assert mask_ips(text) == (text if expected is None else expected)

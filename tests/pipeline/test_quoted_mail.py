from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.quoted_mail import cut_quoted_mail

ATTRIBUTIONS = [
    "On Mon, 5 Jan 2026 at 10:00, Ann Lee <ann@x.example> wrote:",
    "On Monday, 5 January 2026 at 10:00,\nAnn Lee <ann@x.example>\nwrote:",
    "Am 05.01.2026 um 10:00 schrieb Ann Lee <ann@x.example>:",
    "Le lun. 5 janv. 2026 à 10:00, Ann Lee <ann@x.example> a écrit :",
    "El lun, 5 ene 2026 a las 10:00, Ann Lee (<ann@x.example>) escribió:",
    "Il giorno lun 5 gen 2026 alle ore 10:00 Ann Lee ha scritto:",
    "Op ma 5 jan. 2026 om 10:00 schreef Ann Lee <ann@x.example>:",
    "Em seg., 5 de jan. de 2026 às 10:00, Ann Lee escreveu:",
    "W dniu 05.01.2026 o 10:00, Ann Lee pisze:",
    "pon., 5 sty 2026 o 10:00 Ann Lee <ann@x.example> napisał(a):",
]
SEPARATORS = [
    "-----Original Message-----",
    "-----Ursprüngliche Nachricht-----",
    "---- Message d'origine ----",
    "-----Mensaje original-----",
    "-----Messaggio originale-----",
    "----- Oorspronkelijk bericht -----",
    "-----Mensagem original-----",
    "-----Wiadomość oryginalna-----",
]
HEADERS = [
    "From: Ann\nSent: Monday\nTo: Bob\nSubject: Hi",
    "**Von:** Ann\n**Gesendet:** heute\n**An:** Bob",
    "De : Ann\nEnvoyé : lundi\nÀ : Bob\nObjet : Salut",
    "De: Ann\nEnviado el: lunes\nPara: Bob\nAsunto: Ho",
    "Da: Ann\nInviato: oggi\nA: Bob\nOggetto: Ciao",
    "Van: Ann\nVerzonden: ma\nAan: Bob\nOnderwerp: Hoi",
    "De: Ann\nEnviada em: seg\nPara: Bob\nAssunto: Oi",
    "Od: Ann\nWysłano: pon\nDo: Bob\nTemat: Hej",
]
SIGNATURES = [
    "-- \nAnn Lee\nACME", "--\nAnn", "Sent from my iPhone", "Get Outlook for Android",
    "Von meinem iPad gesendet", "Gesendet mit der WEB.DE Mail App", "Envoyé de mon iPhone",
    "Enviado desde mi iPhone", "Inviato da iPhone", "Verzonden vanaf mijn iPhone",
    "Enviado do meu iPhone", "Wysłane z iPhone'a",
]  # fmt: skip


@pytest.mark.parametrize("tail", [*ATTRIBUTIONS, *SEPARATORS, *HEADERS])
def test_what_follows_a_thread_header_is_cut(tail):
    assert cut_quoted_mail(f"It still fails.\n{tail}\n\nold words\n") == "It still fails."


@pytest.mark.parametrize("signature", SIGNATURES)
def test_a_signature_is_cut(signature):
    assert cut_quoted_mail(f"It still fails.\n{signature}\n\n") == "It still fails."


@pytest.mark.parametrize("attribution", ATTRIBUTIONS)
def test_a_reply_below_or_between_quoted_lines_is_kept(attribution):
    mail = f"{attribution}\n\n> Which version?\nThe newest.\n>> Since when?\n> ok\nYesterday."
    assert cut_quoted_mail(mail) == "\nThe newest.\nYesterday."


@pytest.mark.parametrize(
    "mail",
    [
        "> all\n> quoted", "On 5 Jan Ann wrote:\n> all", "-----Original Message-----\nhello",
        "From: A\nSent: B\nTo: C\nSubject: D\n\nthe message", "Sent from my iPhone\n", "--\nAnn",
        "a\n>From here on\n>from there",
        "See below\n---------- Forwarded message ---------\nthe complaint",
        "5\n>50 EUR\n>:( \n>_< \nx -- y\na\n---\nb", "I am from: nowhere\nTo: nobody\nthe rest",
        "On the phone he wrote:\nnothing", "Sent from Berlin?\nSent from Rome, when will it come?",
    ],
)  # fmt: skip
def test_what_is_no_quote_or_all_there_is_stays(mail):
    assert cut_quoted_mail(mail) == mail


def test_a_dash_line_far_above_the_end_is_no_signature():
    mail = "a\n--\n" + "line\n" * 20
    assert cut_quoted_mail(mail) == mail


LINES = st.sampled_from(
    ["", "hello", "> q", ">> q", *ATTRIBUTIONS[:3], *SEPARATORS[:2], *HEADERS[:2], *SIGNATURES[:3]]
)


@settings(max_examples=300)
@given(st.lists(LINES, max_size=12).map("\n".join))
def test_lines_are_only_left_out_and_never_all_of_them(mail):
    cut = cut_quoted_mail(mail)
    lines = iter(mail.split("\n"))
    assert all(line in lines for line in cut.split("\n"))  # a subsequence
    assert any(map(str.isalnum, cut)) == any(map(str.isalnum, mail))
    assert "hello" in cut or "hello" not in mail.split("\n")[:1]

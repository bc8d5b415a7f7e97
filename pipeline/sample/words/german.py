"""German."""

# ruff: noqa: E501 - a template reads best on one line
from __future__ import annotations

from pipeline.sample.words.shape import Language, ReviewWords, TicketWords

_SLOTS = {
    "name": (
        "Jürgen",
        "Sabine",
        "Müller",
        "Katrin",
        "Özlem",
        "Groß",
        "Lukas",
        "Schäfer",
        "Anke",
        "Jonas",
    ),
    "product": (
        "Kaffeemühle",
        "Kopfhörer",
        "Regenjacke",
        "Laufschuhe",
        "Schreibtischlampe",
        "Zelt",
        "Bürostuhl",
        "Wasserkocher",
        "Staubsauger",
        "Rucksack",
        "Matratze",
    ),
    "software": ("die App", "der Webshop", "das Programm", "die Handy-App"),
    "feature": (
        "der Kalender",
        "die Suche",
        "der Export",
        "die Karte",
        "der Merkzettel",
        "der Chat",
    ),
    "device": ("iPhone", "Laptop", "Tablet", "Galaxy", "Windows-PC"),
    "city": ("Köln", "München", "Leipzig", "Wien", "Zürich", "Lübeck", "Hamburg"),
    "date": ("{day}. November", "{day}.11.", "letzten Montag", "{day}. Oktober"),
    "use": ("die Küche", "unterwegs", "den Garten", "die Arbeit"),
}

_TICKETS = TicketWords(
    greetings=(
        "Hallo,",
        "Guten Tag,",
        "Sehr geehrte Damen und Herren,",
        "Moin,",
        "Liebes Team,",
        "Hallo {name},",
    ),
    intros=(
        "Es geht um die Bestellung {order}.",
        "Meine Kundennummer lautet {number}.",
        "Ich bin seit {few} Jahren Kunde bei Ihnen.",
        "Leider [erreiche ich niemanden am Telefon|geht bei Ihnen keiner ran].",
    ),
    complaints={
        "double_charge": (
            "Mir wurden {amount} [zweimal|doppelt] [abgebucht|berechnet].",
            "Auf meinem Konto sehe ich zwei Abbuchungen über {amount}.",
        ),
        "wrong_invoice": (
            "Auf der Rechnung {number} steht [ein falscher Betrag|die falsche Firma|die falsche Adresse].",
            "Ich habe für {order} nie eine Rechnung bekommen.",
        ),
        "payment_declined": (
            "Meine [Kreditkarte|Zahlung|Karte] wird [immer wieder |]abgelehnt, obwohl Geld drauf ist.",
            "Die Zahlung mit PayPal über {amount} schlägt fehl.",
        ),
        "missing_refund": (
            "Die [zugesagte |]Gutschrift über {amount} ist [noch immer |]nicht auf meinem Konto.",
        ),
        "price_change": (
            "Warum kostet mein Abo jetzt {amount} statt {amount}?",
            "Der Gutscheincode {code} wurde beim Bezahlen nicht abgezogen.",
        ),
        "app_crash": (
            "Die App stürzt [seit dem Update|beim Start|ständig] ab.",
            "Seit Version {version} bleibt der Bildschirm auf meinem {device} schwarz.",
        ),
        "feature_broken": (
            "In der App funktioniert {feature} [seit {date} |]nicht mehr.",
            "Beim Klick auf den Export kommt Fehler {number}.",
        ),
        "slow": ("Die [Seite|App] lädt [ewig|extrem langsam|{dozens} Sekunden].",),
        "sync_failure": ("Meine Daten werden zwischen {device} und Web nicht synchronisiert.",),
        "late_parcel": (
            "Mein Paket [sollte am {date} kommen|ist seit {days} Tagen überfällig] und ist nicht da.",
            "Die Lieferung von {order} [verspätet sich|lässt auf sich warten], kein Bote in Sicht.",
        ),
        "lost_parcel": (
            "Laut Zusteller wurde das Paket abgegeben, aber [hier ist nichts|die Nachbarn haben nichts].",
        ),
        "wrong_address": (
            "Ich habe für {order} die falsche Lieferadresse angegeben, kann man das ändern?",
        ),
        "tracking_stuck": (
            "Die Sendungsverfolgung [steht seit {days} Tagen still|zeigt nichts an].",
            "Das Paket hängt laut Tracking im Zoll in {city}.",
        ),
        "password_reset": (
            "Ich habe mein Passwort vergessen und die Mail zum Zurücksetzen kommt nicht an.",
        ),
        "locked_out": (
            "Mein [Konto|Kundenkonto|Profil] [ist gesperrt|wurde blockiert].",
            "Ich bekomme den Code für die Anmeldung nicht auf {phone}.",
        ),
        "change_details": ("Bitte ändern Sie die E-Mail-Adresse in meinem Profil auf {email}.",),
        "delete_account": (
            "Bitte löschen Sie mein Kundenkonto und alle meine Daten[ laut DSGVO|].",
        ),
        "suspicious_login": (
            "Jemand aus {city} hat sich in mein Profil eingeloggt, das war nicht ich.",
        ),
        "return_request": (
            "Ich möchte [den Artikel|die Ware|{product}] zurückschicken, [passt nicht|gefällt mir nicht].",
            "Ich brauche ein Rücksendeetikett für {order}.",
        ),
        "wrong_item": (
            "Statt {product} habe ich [etwas anderes|die falsche Größe|die falsche Farbe] bekommen.",
        ),
        "damaged_item": (
            "{product} ist nach {days} Tagen kaputt, ich will einen Umtausch auf Garantie.",
        ),
        "exchange": (
            "Kann ich {product} gegen [eine andere Größe|ein anderes Modell] umtauschen?",
        ),
        "praise": ("Ich wollte nur Danke sagen, {name} war [super|sehr freundlich].",),
        "opening_hours": ("Wann hat Ihre Filiale in {city} geöffnet?",),
        "partnership": ("Wir sind eine Firma aus {city} und möchten Händler werden.",),
        "product_question": (
            "Gibt es {product} auch in grün?",
            "Wann ist {product} wieder verfügbar?",
        ),
        "feedback": (
            "Bitte nehmen Sie mich aus dem Verteiler Ihres Newsletters.",
            "Ein Vorschlag: mehr vegane Produkte.",
        ),
        "refund_lost_parcel": ("Ich habe {amount} bezahlt und {product} kam nie an.",),
        "damaged_in_transit": ("Der Karton war zerdrückt und {product} ist kaputt angekommen.",),
        "login_error": ("Ich kann mich [seit dem Update |]nicht mehr einloggen, Fehler {number}.",),
        "cancel_subscription": ("Ich kündige mein Abo[ zum {date}|].",),
        "refund_after_return": (
            "Ich habe {product} am {date} zurückgeschickt und nichts mehr gehört.",
        ),
        "paid_not_active": ("Premium ist bezahlt, aber nicht freigeschaltet.",),
        "vague": (
            "Es geht nicht, bitte helfen Sie mir.",
            "Mit meiner Bestellung stimmt etwas nicht.",
        ),
    },
    asks={
        "billing": (
            "Ich will mein Geld zurück.",
            "Bitte erstatten Sie mir {amount}.",
            "Bitte die Rechnung korrigieren.",
        ),
        "technical": (
            "Ist das ein bekannter Fehler?",
            "Neu installiert habe ich schon.",
            "Bitte beheben Sie den Bug.",
        ),
        "shipping": (
            "Wo ist mein Paket?",
            "Wann wird geliefert?",
            "Bitte schicken Sie es noch einmal los.",
        ),
        "account": ("Bitte entsperren Sie mein Konto.", "Bitte setzen Sie mein Passwort zurück."),
        "returns": (
            "Wie läuft die Rücksendung?",
            "Ich möchte Ersatz.",
            "Bitte schicken Sie mir ein Retourenlabel.",
        ),
        "other": ("Danke für die Auskunft.", "An wen kann ich mich wenden?"),
    },
    urgency={
        "high": (
            "Es ist [sehr |]dringend!",
            "Ich brauche es bis morgen früh!",
            "Sonst gehe ich zum Anwalt.",
            "Unser ganzer Betrieb steht still.",
        ),
        "normal": ("Bitte um Rückmeldung.", "Bitte melden Sie sich diese Woche."),
        "low": ("Es eilt nicht.", "Hat Zeit.", "Nur eine Frage aus Neugier."),
    },
    subjects={
        "billing": ("Doppelte Abbuchung", "Rechnung {number}", "Falscher Betrag"),
        "technical": ("App stürzt ab", "Fehler {number}", "Seite lädt nicht"),
        "shipping": ("Wo ist mein Paket", "Lieferung {order}", "Sendungsverfolgung"),
        "account": ("Konto gesperrt", "Passwort vergessen", "Profil ändern"),
        "returns": ("Rücksendung {order}", "Umtausch", "Falscher Artikel"),
        "other": ("Frage", "Danke", "Anregung"),
    },
    plain_subjects=(
        "Bestellung {order}",
        "Hilfe",
        "Problem",
        "Anfrage",
        "AW: {order}",
        "Beschwerde",
    ),
    fillers=(
        "Es sollte ein Geschenk für meine [Mutter|Tochter] sein.",
        "Bisher war ich [immer |]zufrieden.",
        "Im Chat konnte mir keiner helfen.",
        "Bilder habe ich angehängt.",
        "Sie erreichen mich unter {phone}.",
        "Am {date} habe ich mit {name} telefoniert.",
        "Ein Kollege hatte das Gleiche.",
        "Ich arbeite im Schichtdienst in {city}.",
        "Die AGB habe ich gelesen.",
    ),
    boilerplate=(
        "Vielen Dank für Ihre Nachricht, die wir unter der Nummer {number} führen.",
        "Bitte antworten Sie nicht auf diese automatisch erzeugte E-Mail.",
        "Wir melden uns innerhalb von {days} Werktagen bei Ihnen.",
        "Zur Zeit erreichen uns sehr viele Anfragen, daher kann es etwas länger dauern.",
        "Diese Nachricht ist vertraulich und nur für den Empfänger bestimmt.",
        "Mit freundlichen Grüßen, {name}, Kundendienst, {email}",
    ),
    forwards=("Siehe unten, bisher keine Antwort.", "Hier noch einmal der ganze Verlauf."),
    quote_lines=("Am {date} um {time} schrieb {name} <{email}>:",),
    closings=(
        "Mit freundlichen Grüßen\n{name}",
        "Viele Grüße\n{name}",
        "MfG {name}",
        "Danke im Voraus!",
        "LG {name}",
    ),
)

_REVIEWS = ReviewWords(
    praise={
        "quality": (
            "[Sehr |]gut verarbeitet.",
            "{product} funktioniert einwandfrei.",
            "Top Qualität.",
        ),
        "delivery": (
            "[Schnelle|Sehr schnelle] Lieferung.",
            "Kam am nächsten Tag an, gut verpackt.",
        ),
        "price": ("[Super|Tolles] Preis-Leistungs-Verhältnis.", "Für {amount} ein Schnäppchen."),
        "service": (
            "Der Kundendienst war sehr [nett|hilfsbereit].",
            "{name} vom Support hat sofort geholfen.",
        ),
    },
    blame={
        "quality": (
            "Nach {days} Tagen kaputt.",
            "Billiges Plastik, schlecht verarbeitet.",
            "{product} wackelt und stinkt.",
        ),
        "delivery": ("Lieferung dauerte {days} Tage.", "Paket kam zu spät und war beschädigt."),
        "price": ("Viel zu teuer.", "{amount} ist es nicht wert."),
        "service": ("Der Kundendienst antwortet nicht.", "Unfreundlicher Support, keine Hilfe."),
    },
    shrug={
        "quality": ("Qualität geht so.", "Verarbeitung ist durchschnittlich."),
        "delivery": ("Lieferung war okay.",),
        "price": ("Preis ist in Ordnung.",),
        "service": ("Service war mittelmäßig.",),
    },
    verdicts={
        "positive": (
            "[Sehr|Rundum] zufrieden!",
            "Klare Empfehlung.",
            "Gerne wieder.",
            "Ich liebe es.",
        ),
        "negative": (
            "Finger weg!",
            "[Sehr|Total] enttäuscht.",
            "Nie wieder.",
            "Reine Geldverschwendung.",
        ),
        "neutral": ("Naja, geht so.", "Weder gut noch schlecht.", "Durchschnittlich."),
    },
    sarcasm=("Na toll, ganz große Klasse.", "Herzlichen Glückwunsch zu diesem Meisterwerk."),
    fillers=(
        "Gekauft für {use}.",
        "Habe es seit {few} Wochen.",
        "Die Farbe ist etwas dunkler.",
        "War ein Geschenk.",
    ),
    turns=("Aber", "Allerdings:", "Andererseits:"),
)

LANGUAGE = Language("de", _SLOTS, _TICKETS, _REVIEWS)

"""Italian; fewer scenarios than in the large languages."""

from __future__ import annotations

from pipeline.sample.words.shape import Language, ReviewWords, TicketWords

_SLOTS = {
    "name": ("Niccolò", "Giulia", "Marco", "Rossi", "Chiara", "D'Amico"),
    "product": ("il macinacaffè", "lo zaino", "la lampada", "la giacca", "il bollitore"),
    "feature": ("il calendario", "la ricerca", "la mappa"),
    "device": ("iPhone", "portatile", "tablet"),
    "city": ("Torino", "Forlì", "Napoli", "Lugano"),
    "date": ("il {day} novembre", "lunedì scorso"),
    "use": ("la cucina", "il lavoro", "i viaggi"),
}

_TICKETS = TicketWords(
    greetings=("Buongiorno,", "Salve,", "Ciao,"),
    intros=("Scrivo per l'ordine {order}.", "Il mio codice cliente è {number}."),
    complaints={
        "double_charge": ("Mi avete addebitato {amount} due volte.",),
        "wrong_invoice": ("La fattura {number} riporta un importo sbagliato.",),
        "app_crash": ("L'app si chiude da sola dopo l'aggiornamento {version}.",),
        "feature_broken": ("Nell'app {feature} non funziona, errore {number}.",),
        "late_parcel": ("Il pacco doveva arrivare {date} e non c'è ancora.",),
        "tracking_stuck": ("La spedizione è ferma a {city} da {days} giorni.",),
        "password_reset": ("Ho dimenticato la password e la mail di recupero non arriva.",),
        "locked_out": ("Il mio account è bloccato.",),
        "return_request": ("Vorrei restituire {product}, è troppo piccolo.",),
        "wrong_item": ("Ho ricevuto il colore sbagliato invece di {product}.",),
        "opening_hours": ("Quali sono gli orari del negozio di {city}?",),
        "praise": ("Volevo solo ringraziare {name}, gentilissima.",),
        "refund_lost_parcel": ("Ho pagato {amount} e non è mai arrivato niente.",),
        "login_error": ("Non riesco ad accedere, errore {number}.",),
    },
    asks={
        "billing": ("Voglio il rimborso.",),
        "technical": ("È un problema noto?",),
        "shipping": ("Dov'è il mio pacco?",),
        "account": ("Sbloccate il mio account per favore.",),
        "returns": ("Come faccio il reso?",),
        "other": ("Grazie per l'informazione.",),
    },
    urgency={
        "high": ("È [molto |]urgente!",),
        "normal": ("Attendo risposta.",),
        "low": ("Non c'è fretta.",),
    },
    subjects={
        "billing": ("Doppio addebito",),
        "technical": ("Errore {number}",),
        "shipping": ("Spedizione {order}",),
        "account": ("Account bloccato",),
        "returns": ("Reso {order}",),
        "other": ("Domanda",),
    },
    plain_subjects=("Ordine {order}", "Aiuto", "Problema"),
    fillers=("Era un regalo per mia madre.", "Allego due foto.", "Il mio numero è {phone}."),
    boilerplate=(
        "Grazie per averci contattato, la sua richiesta ha il numero {number}.",
        "Non risponda a questo messaggio automatico.",
        "Cordiali saluti, {name}, servizio clienti, {email}",
    ),
    forwards=("Nessuna risposta finora, vedi sotto.",),
    quote_lines=("Il {date} alle {time} {name} ha scritto:",),
    closings=("Cordiali saluti\n{name}", "Grazie, {name}"),
)

_REVIEWS = ReviewWords(
    praise={
        "quality": ("Ottima qualità.",),
        "delivery": ("Consegna velocissima.",),
        "price": ("Prezzo ottimo.",),
        "service": ("Assistenza molto gentile.",),
    },
    blame={
        "quality": ("Si è rotto dopo {days} giorni.",),
        "delivery": ("Consegna in ritardo di {days} giorni.",),
        "price": ("Troppo caro.",),
        "service": ("L'assistenza non risponde.",),
    },
    shrug={
        "quality": ("Qualità media.",),
        "delivery": ("Consegna normale.",),
        "price": ("Prezzo nella norma.",),
        "service": ("Assistenza così così.",),
    },
    verdicts={
        "positive": ("Lo adoro!", "Consigliatissimo."),
        "negative": ("Non compratelo.", "Molto deluso."),
        "neutral": ("Né bene né male.", "Così così."),
    },
    sarcasm=("Complimenti, un vero capolavoro.",),
    fillers=("Comprato per {use}.", "Lo uso ogni giorno."),
    turns=("Però", "Tuttavia,"),
)

LANGUAGE = Language("it", _SLOTS, _TICKETS, _REVIEWS)

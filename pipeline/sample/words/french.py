"""French."""

from __future__ import annotations

from pipeline.sample.words.shape import Language, ReviewWords, TicketWords

_SLOTS = {
    "name": (
        "Hélène",
        "François",
        "Chloé",
        "Lefèvre",
        "Benoît",
        "Amélie",
        "Jérôme",
        "Garçon",
        "Léa",
    ),
    "product": (
        "le moulin à café",
        "la lampe",
        "le sac à dos",
        "la veste",
        "la bouilloire",
        "la tente",
        "l'aspirateur",
        "le casque",
        "la montre",
        "le matelas",
    ),
    "software": ("l'application", "le site", "le logiciel"),
    "feature": ("le calendrier", "la recherche", "la carte", "la liste d'envies", "le rapport"),
    "device": ("iPhone", "ordinateur", "téléphone", "tablette"),
    "city": ("Orléans", "Genève", "Liège", "Nîmes", "Lyon", "Québec"),
    "date": ("le {day} novembre", "le {day}/11", "lundi dernier"),
    "use": ("la cuisine", "le voyage", "le travail", "le jardin"),
}

_TICKETS = TicketWords(
    greetings=("Bonjour,", "Bonsoir,", "Madame, Monsieur,", "Salut,", "Bonjour {name},"),
    intros=(
        "Je vous écris au sujet de la commande {order}.",
        "Mon numéro de client est le {number}.",
        "Je suis client depuis {few} ans.",
        "Personne ne répond au téléphone.",
    ),
    complaints={
        "double_charge": (
            "J'ai été débité deux fois de {amount}.",
            "Je vois deux prélèvements de {amount} sur ma carte.",
        ),
        "wrong_invoice": (
            "La facture {number} comporte [un montant faux|une mauvaise adresse].",
            "Je n'ai pas reçu la facture de {order}.",
        ),
        "payment_declined": ("Ma carte est refusée au paiement alors qu'il y a de l'argent.",),
        "missing_refund": (
            "Le remboursement de {amount} n'est [toujours |]pas sur mon compte bancaire.",
        ),
        "price_change": (
            "Pourquoi mon abonnement coûte-t-il {amount} au lieu de {amount} ?",
            "Le code promo {code} n'a pas été déduit du prix.",
        ),
        "app_crash": (
            "L'application plante [au démarrage|sans arrêt|depuis la mise à jour].",
            "Écran noir sur mon {device} depuis la version {version}.",
        ),
        "feature_broken": (
            "Dans l'application, {feature} ne marche plus[ depuis {date}|].",
            "L'export affiche l'erreur {number}.",
        ),
        "slow": (
            "Le site est [très lent|d'une lenteur incroyable], {dozens} secondes pour charger.",
        ),
        "sync_failure": ("Mes données ne se synchronisent pas entre mon {device} et le site.",),
        "late_parcel": (
            "Mon colis devait arriver {date} et le livreur n'est pas venu.",
            "La livraison de {order} a {days} jours de retard.",
        ),
        "lost_parcel": ("Le transporteur dit que le colis est livré mais je n'ai rien reçu.",),
        "wrong_address": (
            "J'ai donné une mauvaise adresse de livraison pour {order}, peut-on changer ?",
        ),
        "tracking_stuck": ("Le suivi du colis n'a pas bougé depuis {days} jours.",),
        "password_reset": (
            "J'ai oublié mon mot de passe et l'e-mail de réinitialisation n'arrive pas.",
        ),
        "locked_out": ("Mon compte client est [bloqué|suspendu].",),
        "change_details": ("Je veux changer l'adresse e-mail de mon profil en {email}.",),
        "delete_account": ("Merci de supprimer mon compte client et mes données.",),
        "suspicious_login": (
            "Quelqu'un s'est connecté à mon profil depuis {city}, ce n'était pas moi.",
        ),
        "return_request": (
            "Je voudrais renvoyer [l'article|{product}], [trop petit|ça ne me plaît pas].",
            "Il me faut une étiquette de retour.",
        ),
        "wrong_item": ("J'ai reçu [autre chose|une autre couleur|une autre taille] à la place.",),
        "damaged_item": (
            "L'article s'est cassé après {days} jours, je veux un échange sous garantie.",
        ),
        "exchange": ("Puis-je échanger {product} contre une autre taille ?",),
        "praise": ("Je voulais juste vous dire merci, {name} a été adorable.",),
        "opening_hours": ("Quels sont les horaires du magasin de {city} ?",),
        "partnership": ("Nous sommes une société de {city} et souhaitons devenir revendeur.",),
        "product_question": (
            "Est-ce que {product} existe en vert ?",
            "Quand aurez-vous de nouveau {product} ?",
        ),
        "feedback": ("Je ne veux plus recevoir votre lettre d'information.",),
        "refund_lost_parcel": ("J'ai payé {amount} et je n'ai jamais rien reçu.",),
        "damaged_in_transit": ("Le carton était écrasé et l'article est arrivé cassé.",),
        "login_error": ("Impossible de me connecter, erreur {number}.",),
        "cancel_subscription": ("Je veux résilier mon abonnement.",),
        "refund_after_return": ("J'ai renvoyé l'article {date} et je n'ai plus de nouvelles.",),
        "paid_not_active": ("J'ai payé l'offre premium et elle n'est pas active.",),
        "vague": ("Ça ne marche pas, aidez-moi.", "J'ai un problème avec ma commande."),
    },
    asks={
        "billing": ("Je veux être remboursé.", "Merci de corriger le montant."),
        "technical": ("Est-ce un bug connu ?", "J'ai déjà réinstallé l'application."),
        "shipping": ("Où est mon colis ?", "Quand serai-je livré ?"),
        "account": ("Merci de débloquer mon compte.", "Comment retrouver mon accès ?"),
        "returns": ("Comment le renvoyer ?", "Je veux un échange."),
        "other": ("Merci pour l'information.", "À qui puis-je m'adresser ?"),
    },
    urgency={
        "high": (
            "C'est [très |]urgent !",
            "Il me le faut pour demain !",
            "Sinon je saisis mon avocat.",
        ),
        "normal": ("Merci de me répondre cette semaine.", "Dans l'attente de votre réponse."),
        "low": ("Rien ne presse.", "Ce n'est pas urgent.", "Simple curiosité."),
    },
    subjects={
        "billing": ("Double débit", "Facture {number}"),
        "technical": ("Erreur {number}", "L'application plante"),
        "shipping": ("Où est mon colis", "Livraison {order}"),
        "account": ("Compte bloqué", "Mot de passe"),
        "returns": ("Retour {order}", "Échange"),
        "other": ("Question", "Merci"),
    },
    plain_subjects=(
        "Commande {order}",
        "Aide",
        "Problème",
        "Demande",
        "RE : {order}",
        "Réclamation",
    ),
    fillers=(
        "C'était un cadeau pour ma mère.",
        "Jusqu'ici j'étais content de vous.",
        "Je joins deux photos.",
        "Mon numéro est le {phone}.",
        "J'ai parlé avec {name} {date}.",
        "Un ami a vécu la même chose.",
        "J'habite à {city}.",
    ),
    boilerplate=(
        "Merci de nous avoir contactés, votre demande porte le numéro {number}.",
        "Ne répondez pas à ce message automatique.",
        "Notre équipe vous répondra sous {days} jours ouvrés.",
        "Ce message est confidentiel et destiné à son seul destinataire.",
        "Cordialement, {name}, service clients, {email}",
    ),
    forwards=("Toujours pas de réponse, voir plus bas.",),
    quote_lines=("Le {date} à {time}, {name} <{email}> a écrit :",),
    closings=("Cordialement,\n{name}", "Merci d'avance", "Bien à vous\n{name}", "Cdt {name}"),
)

_REVIEWS = ReviewWords(
    praise={
        "quality": ("[Très |]bonne qualité.", "Fonctionne parfaitement, bien fini."),
        "delivery": ("Livraison [rapide|très rapide].", "Arrivé le lendemain, bien emballé."),
        "price": ("[Excellent|Très bon] rapport qualité-prix.", "Une affaire à {amount}."),
        "service": ("Service client très aimable.", "{name} du support m'a aidé tout de suite."),
    },
    blame={
        "quality": ("Cassé après {days} jours.", "Mauvaise qualité, plastique bas de gamme."),
        "delivery": ("Livraison en {days} jours.", "Colis arrivé en retard et abîmé."),
        "price": ("Beaucoup trop cher.", "Ne vaut pas {amount}."),
        "service": ("Le service client ne répond pas.", "Support désagréable, aucune aide."),
    },
    shrug={
        "quality": ("Qualité moyenne.",),
        "delivery": ("Livraison correcte, sans plus.",),
        "price": ("Prix correct.",),
        "service": ("Service moyen.",),
    },
    verdicts={
        "positive": (
            "J'adore !",
            "Je [le |]recommande[ vivement|].",
            "Parfait pour {use}.",
            "Très contente.",
        ),
        "negative": ("À fuir !", "[Très|Vraiment] déçu.", "Plus jamais.", "De l'argent jeté."),
        "neutral": ("Ni bien ni mal.", "Moyen.", "Ça va, sans plus."),
    },
    sarcasm=("Bravo, quel chef-d'œuvre.",),
    fillers=(
        "Acheté pour {use}.",
        "C'était un cadeau.",
        "La couleur est un peu plus foncée.",
        "Je l'utilise chaque jour.",
    ),
    turns=("Mais", "Cependant,", "Par contre,"),
)

LANGUAGE = Language("fr", _SLOTS, _TICKETS, _REVIEWS)

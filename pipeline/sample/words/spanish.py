"""Spanish."""

from __future__ import annotations

from pipeline.sample.words.shape import Language, ReviewWords, TicketWords

_SLOTS = {
    "name": ("María", "José", "Lucía", "Muñoz", "Iñaki", "Carmen", "Andrés", "Peña", "Sofía"),
    "product": (
        "molinillo de café",
        "mochila",
        "lámpara",
        "chaqueta",
        "cafetera",
        "silla de oficina",
        "aspiradora",
        "reloj",
        "tienda de campaña",
        "auriculares",
    ),
    "software": ("la aplicación", "la web", "el programa"),
    "feature": ("el calendario", "la búsqueda", "el mapa", "la lista de deseos", "el informe"),
    "device": ("iPhone", "portátil", "móvil", "tableta"),
    "city": ("Sevilla", "Bogotá", "Málaga", "Lima", "Córdoba", "Madrid"),
    "date": ("el {day} de noviembre", "el {day}/11", "el lunes pasado"),
    "use": ("la cocina", "viajar", "el trabajo", "el jardín"),
}

_TICKETS = TicketWords(
    greetings=("Hola,", "Buenos días,", "Buenas tardes,", "Estimados señores:", "Hola {name},"),
    intros=(
        "Escribo por el pedido {order}.",
        "Mi número de cliente es {number}.",
        "Soy cliente desde hace {few} años.",
        "Nadie contesta al teléfono.",
    ),
    complaints={
        "double_charge": (
            "Me han cobrado {amount} dos veces.",
            "Veo dos cargos de {amount} en mi tarjeta.",
        ),
        "wrong_invoice": (
            "La factura {number} tiene [el importe|el nombre] equivocado.",
            "No recibí la factura de {order}.",
        ),
        "payment_declined": ("Mi tarjeta es rechazada al pagar aunque tiene saldo.",),
        "missing_refund": (
            "El reembolso de {amount} [todavía |]no ha llegado a mi cuenta bancaria.",
        ),
        "price_change": (
            "¿Por qué me cobran {amount} al mes si antes eran {amount}?",
            "El cupón {code} no se aplicó al precio.",
        ),
        "app_crash": (
            "La aplicación se cierra [sola|al abrirla|desde la actualización].",
            "Pantalla negra en mi {device} desde la versión {version}.",
        ),
        "feature_broken": (
            "No funciona {feature} en la aplicación[ desde {date}|].",
            "Al exportar sale el error {number}.",
        ),
        "slow": ("La página va [muy lenta|lentísima], tarda {dozens} segundos en cargar.",),
        "sync_failure": ("Mis datos no se sincronizan entre el {device} y la web.",),
        "late_parcel": (
            "Mi paquete debía llegar {date} y no ha venido el repartidor.",
            "El envío de {order} lleva {days} días de retraso.",
        ),
        "lost_parcel": ("Según el mensajero el paquete fue entregado, pero aquí no hay nada.",),
        "wrong_address": ("Puse mal la dirección de entrega de {order}, ¿se puede cambiar?",),
        "tracking_stuck": ("El seguimiento del envío no cambia desde hace {days} días.",),
        "password_reset": ("Olvidé mi contraseña y el correo para cambiarla no llega.",),
        "locked_out": ("Mi cuenta de usuario está [bloqueada|suspendida].",),
        "change_details": ("Quiero cambiar el correo de mi perfil a {email}.",),
        "delete_account": ("Por favor borren mi cuenta de usuario y mis datos.",),
        "suspicious_login": ("Alguien entró en mi perfil desde {city}, no fui yo.",),
        "return_request": (
            "Quiero devolver [el artículo|{product}], [no me queda bien|no me gusta].",
            "Necesito la etiqueta de devolución.",
        ),
        "wrong_item": ("En lugar de {product} recibí [otra cosa|otro color|otra talla].",),
        "damaged_item": ("{product} se rompió a los {days} días, quiero el cambio por garantía.",),
        "exchange": ("¿Puedo cambiar {product} por otra talla?",),
        "praise": ("Solo quería dar las gracias, {name} fue muy amable.",),
        "opening_hours": ("¿Qué horario tiene la tienda de {city}?",),
        "partnership": ("Somos una empresa de {city} y queremos ser distribuidores.",),
        "product_question": ("¿Cuándo vuelven a tener {product}?", "¿Existe {product} en verde?"),
        "feedback": ("No quiero recibir más su boletín.",),
        "refund_lost_parcel": ("Pagué {amount} y {product} nunca llegó.",),
        "damaged_in_transit": ("La caja llegó aplastada y {product} está roto.",),
        "login_error": ("No puedo iniciar sesión, sale el error {number}.",),
        "cancel_subscription": ("Quiero cancelar mi suscripción.",),
        "refund_after_return": ("Devolví {product} {date} y no sé nada más.",),
        "paid_not_active": ("Pagué el plan premium y no está activo.",),
        "vague": ("No funciona, ayuda por favor.", "Tengo un problema con mi pedido."),
    },
    asks={
        "billing": ("Quiero que me devuelvan el dinero.", "Por favor corrijan el cobro."),
        "technical": ("¿Es un fallo conocido?", "Ya reinstalé la aplicación."),
        "shipping": ("¿Dónde está mi paquete?", "¿Cuándo lo entregan?"),
        "account": ("Por favor desbloqueen mi usuario.", "¿Cómo recupero mi acceso?"),
        "returns": ("¿Cómo lo devuelvo?", "Quiero otro a cambio."),
        "other": ("Gracias por la información.", "¿Con quién puedo hablar?"),
    },
    urgency={
        "high": ("¡Es [muy |]urgente!", "¡Lo necesito para mañana!", "Si no, voy a denunciar."),
        "normal": ("Espero su respuesta.", "Quedo a la espera."),
        "low": ("No hay prisa.", "No es urgente.", "Solo es curiosidad."),
    },
    subjects={
        "billing": ("Cobro doble", "Factura {number}"),
        "technical": ("Error {number}", "La aplicación no abre"),
        "shipping": ("Dónde está mi paquete", "Envío {order}"),
        "account": ("Cuenta bloqueada", "Contraseña"),
        "returns": ("Devolución {order}", "Cambio de talla"),
        "other": ("Pregunta", "Gracias"),
    },
    plain_subjects=("Pedido {order}", "Ayuda", "Problema", "Consulta", "RE: {order}", "Queja"),
    fillers=(
        "Era un regalo para mi madre.",
        "Hasta ahora estaba contento con ustedes.",
        "Adjunto dos fotos.",
        "Mi teléfono es {phone}.",
        "Hablé con {name} {date}.",
        "A un amigo le pasó lo mismo.",
        "Vivo en {city}.",
    ),
    boilerplate=(
        "Gracias por ponerse en contacto con nosotros, su número de caso es {number}.",
        "No responda a este mensaje automático.",
        "Nuestro equipo le contestará en un plazo de {days} días laborables.",
        "Este correo es confidencial y va dirigido solo a su destinatario.",
        "Un saludo, {name}, atención al cliente, {email}",
    ),
    forwards=("Sigo sin respuesta, vean abajo.",),
    quote_lines=("El {date} a las {time}, {name} <{email}> escribió:",),
    closings=(
        "Saludos\n{name}",
        "Gracias de antemano",
        "Atentamente,\n{name}",
        "Un saludo, {name}",
    ),
)

_REVIEWS = ReviewWords(
    praise={
        "quality": ("[Muy |]buena calidad.", "{product} funciona perfectamente."),
        "delivery": ("Envío [rápido|rapidísimo].", "Llegó al día siguiente, bien embalado."),
        "price": ("[Excelente|Muy buen] precio.", "Por {amount} es una ganga."),
        "service": (
            "La atención al cliente fue muy amable.",
            "{name} del soporte me ayudó enseguida.",
        ),
    },
    blame={
        "quality": ("Se rompió a los {days} días.", "Mala calidad, plástico barato."),
        "delivery": ("El envío tardó {days} días.", "El paquete llegó tarde y abierto."),
        "price": ("Demasiado caro.", "No vale {amount}."),
        "service": ("La atención al cliente no contesta.", "Soporte pésimo y maleducado."),
    },
    shrug={
        "quality": ("La calidad es normal.",),
        "delivery": ("El envío fue normal.",),
        "price": ("El precio es normal.",),
        "service": ("La atención fue regular.",),
    },
    verdicts={
        "positive": (
            "¡Me encanta!",
            "[Muy|Totalmente] recomendable.",
            "Lo volvería a comprar.",
            "Estoy muy contenta.",
        ),
        "negative": ("No lo compren.", "[Muy|Qué] decepcionado.", "Nunca más.", "Una estafa."),
        "neutral": ("Ni bueno ni malo.", "Cumple, sin más.", "Regular."),
    },
    sarcasm=("Genial, enhorabuena por esta obra maestra.",),
    fillers=(
        "Lo compré para {use}.",
        "Fue un regalo.",
        "El color es un poco más oscuro.",
        "Lo uso a diario.",
    ),
    turns=("Pero", "Sin embargo,", "Por otro lado,"),
)

LANGUAGE = Language("es", _SLOTS, _TICKETS, _REVIEWS)

"""Portuguese."""

from __future__ import annotations

from pipeline.sample.words.shape import Language, ReviewWords, TicketWords

_SLOTS = {
    "name": ("João", "Conceição", "Inês", "Magalhães", "Luís", "Beatriz", "Tomás", "Simões"),
    "product": (
        "moedor de café",
        "mochila",
        "candeeiro",
        "casaco",
        "chaleira",
        "cadeira",
        "aspirador",
        "relógio",
    ),
    "software": ("o aplicativo", "o site", "o programa"),
    "feature": ("o calendário", "a pesquisa", "o mapa", "a lista de desejos", "o relatório"),
    "device": ("iPhone", "portátil", "celular", "tablet"),
    "city": ("São Paulo", "Évora", "Porto", "Brasília", "Lisboa"),
    "date": ("dia {day} de novembro", "dia {day}/11", "segunda passada"),
    "use": ("a cozinha", "viajar", "o trabalho", "o jardim"),
}

_TICKETS = TicketWords(
    greetings=("Olá,", "Bom dia,", "Boa tarde,", "Prezados,", "Oi,"),
    intros=(
        "Escrevo sobre o pedido {order}.",
        "O meu número de cliente é {number}.",
        "Sou cliente há {few} anos.",
        "Ninguém atende o telefone.",
    ),
    complaints={
        "double_charge": (
            "Fui cobrado duas vezes, {amount} cada.",
            "Há duas cobranças de {amount} no meu cartão.",
        ),
        "wrong_invoice": ("A fatura {number} tem [o valor|o nome] errado.",),
        "payment_declined": ("O meu cartão é recusado no pagamento.",),
        "missing_refund": ("O reembolso de {amount} [ainda |]não caiu na minha conta bancária.",),
        "price_change": (
            "Por que a mensalidade subiu para {amount}?",
            "O cupom {code} não foi descontado do preço.",
        ),
        "app_crash": (
            "O aplicativo fecha sozinho [ao abrir|desde a atualização].",
            "Tela preta no meu {device} desde a versão {version}.",
        ),
        "feature_broken": (
            "No aplicativo {feature} não funciona mais[ desde {date}|].",
            "A exportação dá erro {number}.",
        ),
        "slow": ("O site está [muito lento|lentíssimo], demora {dozens} segundos a carregar.",),
        "sync_failure": ("Os meus dados não sincronizam entre o {device} e o site.",),
        "late_parcel": (
            "A encomenda devia chegar {date} e não veio.",
            "A entrega de {order} está {days} dias atrasada.",
        ),
        "lost_parcel": ("O transportador diz que entregou a encomenda, mas não recebi nada.",),
        "wrong_address": ("Dei o endereço de entrega errado para {order}, dá para mudar?",),
        "tracking_stuck": ("O rastreio da encomenda não muda há {days} dias.",),
        "password_reset": ("Esqueci a senha e o e-mail para redefinir não chega.",),
        "locked_out": ("A minha conta de utilizador está bloqueada.",),
        "change_details": ("Quero mudar o e-mail do meu perfil para {email}.",),
        "delete_account": ("Por favor apaguem a minha conta de utilizador e os meus dados.",),
        "suspicious_login": ("Alguém entrou no meu perfil a partir de {city}, não fui eu.",),
        "return_request": (
            "Quero devolver [o artigo|{product}], [não serve|não gostei].",
            "Preciso da etiqueta de devolução.",
        ),
        "wrong_item": ("Em vez de {product} recebi [outra coisa|outra cor].",),
        "damaged_item": ("O produto partiu ao fim de {days} dias, quero a troca pela garantia.",),
        "exchange": ("Posso trocar {product} por outro tamanho?",),
        "praise": ("Só queria agradecer, {name} foi muito simpática.",),
        "opening_hours": ("Qual é o horário da loja de {city}?",),
        "partnership": ("Somos uma empresa de {city} e queremos revender.",),
        "product_question": ("Quando volta a haver {product}?",),
        "feedback": ("Não quero receber mais a vossa newsletter.",),
        "refund_lost_parcel": ("Paguei {amount} e o produto nunca chegou.",),
        "damaged_in_transit": ("A caixa chegou amassada e o produto está partido.",),
        "login_error": ("Não consigo entrar, aparece o erro {number}.",),
        "cancel_subscription": ("Quero cancelar a assinatura.",),
        "refund_after_return": ("Devolvi o produto {date} e não soube mais nada.",),
        "paid_not_active": ("Paguei o plano premium e não está ativo.",),
        "vague": ("Não funciona, ajuda por favor.", "Tenho um problema com o pedido."),
    },
    asks={
        "billing": ("Quero o meu dinheiro de volta.", "Corrijam a cobrança por favor."),
        "technical": ("É um erro conhecido?", "Já reinstalei o aplicativo."),
        "shipping": ("Onde está a minha encomenda?", "Quando entregam?"),
        "account": ("Desbloqueiem a minha conta por favor.",),
        "returns": ("Como faço a devolução?", "Quero uma troca."),
        "other": ("Obrigado pela informação.",),
    },
    urgency={
        "high": ("É [muito |]urgente!", "Preciso disto até amanhã!"),
        "normal": ("Aguardo resposta.",),
        "low": ("Não há pressa.", "Não é urgente.", "É só curiosidade."),
    },
    subjects={
        "billing": ("Cobrança dupla", "Fatura {number}"),
        "technical": ("Erro {number}", "Aplicativo não abre"),
        "shipping": ("Onde está a encomenda", "Entrega {order}"),
        "account": ("Conta bloqueada", "Senha"),
        "returns": ("Devolução {order}", "Troca"),
        "other": ("Pergunta", "Obrigado"),
    },
    plain_subjects=("Pedido {order}", "Ajuda", "Problema", "RE: {order}", "Reclamação"),
    fillers=(
        "Era um presente para a minha mãe.",
        "Até agora estava satisfeito.",
        "Anexo duas fotos.",
        "O meu telefone é {phone}.",
        "Falei com {name} {date}.",
        "Moro em {city}.",
    ),
    boilerplate=(
        "Obrigado pelo seu contacto, o número do seu caso é {number}.",
        "Não responda a esta mensagem automática.",
        "A nossa equipa responde em {days} dias úteis.",
        "Esta mensagem é confidencial e destina-se apenas ao destinatário.",
        "Atenciosamente, {name}, apoio ao cliente, {email}",
    ),
    forwards=("Continuo sem resposta, ver abaixo.",),
    quote_lines=("Em {date} às {time}, {name} <{email}> escreveu:",),
    closings=(
        "Cumprimentos\n{name}",
        "Obrigado desde já",
        "Abraço, {name}",
        "Atenciosamente,\n{name}",
    ),
)

_REVIEWS = ReviewWords(
    praise={
        "quality": ("[Muito |]boa qualidade.", "Funciona na perfeição."),
        "delivery": ("Entrega [rápida|muito rápida].", "Chegou no dia seguinte, bem embalado."),
        "price": ("[Ótimo|Excelente] preço.", "Uma pechincha por {amount}."),
        "service": ("Atendimento muito simpático.", "{name} do apoio ajudou logo."),
    },
    blame={
        "quality": ("Partiu ao fim de {days} dias.", "Má qualidade, plástico fraco."),
        "delivery": ("A entrega demorou {days} dias.", "Chegou tarde e amassado."),
        "price": ("Caro demais.", "Não vale {amount}."),
        "service": ("O atendimento não responde.", "Apoio péssimo."),
    },
    shrug={
        "quality": ("Qualidade média.",),
        "delivery": ("Entrega normal.",),
        "price": ("Preço normal.",),
        "service": ("Atendimento razoável.",),
    },
    verdicts={
        "positive": (
            "Adorei!",
            "Recomendo[ muito|].",
            "Comprava outra vez.",
            "Estou muito contente.",
        ),
        "negative": (
            "Não comprem.",
            "[Muito|Que] desiludido.",
            "Nunca mais.",
            "Dinheiro deitado fora.",
        ),
        "neutral": ("Nem bom nem mau.", "Mais ou menos.", "Razoável."),
    },
    sarcasm=("Parabéns por esta obra-prima.",),
    fillers=("Comprei para {use}.", "Foi um presente.", "Uso todos os dias."),
    turns=("Mas", "No entanto,", "Por outro lado,"),
)

LANGUAGE = Language("pt", _SLOTS, _TICKETS, _REVIEWS)

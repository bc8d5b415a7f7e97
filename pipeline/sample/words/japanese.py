"""Japanese; fewer scenarios than in the large languages, and no spaces between sentences."""

from __future__ import annotations

from pipeline.sample.words.shape import Language, ReviewWords, TicketWords

_SLOTS = {
    "name": ("佐藤", "鈴木", "高橋", "田中"),
    "product": ("コーヒーミル", "リュック", "ランプ", "イヤホン"),
    "device": ("スマホ", "パソコン", "タブレット"),
    "city": ("東京", "大阪", "札幌"),
    "date": ("11月{day}日", "先週の月曜日"),
    "use": ("キッチン", "旅行", "仕事"),
}

_TICKETS = TicketWords(
    greetings=("こんにちは。", "お世話になっております。"),
    intros=("注文番号は{order}です。", "顧客番号は{number}です。"),
    complaints={
        "double_charge": ("{amount}が二重に請求されています。",),
        "wrong_invoice": ("請求書{number}の金額が間違っています。",),
        "app_crash": ("バージョン{version}にしてからアプリが落ちます。",),
        "feature_broken": ("エクスポートが動かず、エラー{number}が出ます。",),
        "late_parcel": ("荷物が{date}に届くはずでしたが、まだ届きません。",),
        "tracking_stuck": ("荷物の追跡が{days}日間更新されていません。",),
        "password_reset": ("パスワードを忘れました。再設定メールが来ません。",),
        "locked_out": ("アカウントがロックされました。",),
        "return_request": ("{product}のサイズが合わないので返品したいです。",),
        "wrong_item": ("{product}ではなく違う商品が入っていました。交換してください。",),
        "opening_hours": ("{city}のお店の営業時間を教えてください。",),
        "refund_lost_parcel": ("{amount}を払いましたが、何も届いていません。",),
    },
    asks={
        "billing": ("返金してください。",),
        "technical": ("不具合を直してください。",),
        "shipping": ("荷物はどこですか。",),
        "account": ("ログインできるようにしてください。",),
        "returns": ("返品の方法を教えてください。",),
        "other": ("よろしくお願いします。",),
    },
    urgency={
        "high": ("至急お願いします!",),
        "normal": ("ご返事お待ちしています。",),
        "low": ("急ぎではありません。",),
    },
    subjects={
        "billing": ("二重請求",),
        "technical": ("アプリの不具合",),
        "shipping": ("荷物が届かない",),
        "account": ("ログイン",),
        "returns": ("返品{order}",),
        "other": ("質問",),
    },
    plain_subjects=("注文{order}", "問い合わせ"),
    fillers=("母へのプレゼントでした。", "写真を添付します。", "電話は{phone}です。"),
    boilerplate=("お問い合わせありがとうございます。受付番号は{number}です。",),
    forwards=("下のメールをご覧ください。",),
    quote_lines=("{date} {name}:",),
    closings=("よろしくお願いいたします。", "{name}"),
)

_REVIEWS = ReviewWords(
    praise={
        "quality": ("品質がとても良いです。",),
        "delivery": ("配送が早かったです。",),
        "price": ("コスパ最高です。",),
        "service": ("サポートの対応が丁寧でした。",),
    },
    blame={
        "quality": ("{days}日で壊れました。",),
        "delivery": ("配送が遅く、{days}日かかりました。",),
        "price": ("値段が高すぎます。",),
        "service": ("サポートから返事がありません。",),
    },
    shrug={
        "quality": ("品質は普通です。",),
        "delivery": ("配送は普通。",),
        "price": ("値段は普通。",),
        "service": ("対応は普通。",),
    },
    verdicts={
        "positive": ("大満足です!", "おすすめです。"),
        "negative": ("買わないほうがいい。", "がっかりしました。"),
        "neutral": ("まあまあです。", "可もなく不可もなく。"),
    },
    sarcasm=("さすがですね、素晴らしい。",),
    fillers=("{use}用に買いました。", "色は写真より濃いです。"),
    turns=("でも", "ただ、"),
)

LANGUAGE = Language("ja", _SLOTS, _TICKETS, _REVIEWS, spaced=False)

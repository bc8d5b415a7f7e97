"""Chinese; fewer scenarios than in the large languages, and no spaces between sentences."""

from __future__ import annotations

from pipeline.sample.words.shape import Language, ReviewWords, TicketWords

_SLOTS = {
    "name": ("王芳", "李伟", "张敏", "陈静"),
    "product": ("咖啡机", "背包", "台灯", "耳机", "雨衣"),
    "device": ("手机", "电脑", "平板"),
    "city": ("上海", "成都", "广州"),
    "date": ("11月{day}日", "上周一"),
    "use": ("厨房", "旅行", "上班"),
}

_TICKETS = TicketWords(
    greetings=("你好,", "您好!"),
    intros=("订单号是{order}。", "我是老客户。"),
    complaints={
        "double_charge": ("同一个订单扣了我两次{amount}。",),
        "wrong_invoice": ("发票{number}金额写错了。",),
        "app_crash": ("更新到{version}以后应用一打开就闪退。",),
        "feature_broken": ("导出功能不能用,报错{number}。",),
        "late_parcel": ("包裹应该{date}到,现在还没有送来。",),
        "tracking_stuck": ("快递信息{days}天没有更新了。",),
        "password_reset": ("忘记密码,收不到重置邮件。",),
        "locked_out": ("我的账号被锁定了。",),
        "return_request": ("{product}不合适,我想退货。",),
        "wrong_item": ("发错货了,收到的不是{product}。",),
        "opening_hours": ("请问{city}的店几点开门?",),
        "refund_lost_parcel": ("付了{amount},东西一直没有收到。",),
    },
    asks={
        "billing": ("请退款。",),
        "technical": ("请修复这个问题。",),
        "shipping": ("我的包裹在哪里?",),
        "account": ("请帮我解锁账号。",),
        "returns": ("怎么退货?",),
        "other": ("谢谢。",),
    },
    urgency={"high": ("非常紧急!",), "normal": ("请尽快回复。",), "low": ("不着急。",)},
    subjects={
        "billing": ("重复扣款",),
        "technical": ("应用闪退",),
        "shipping": ("包裹没到",),
        "account": ("账号被锁",),
        "returns": ("退货{order}",),
        "other": ("咨询",),
    },
    plain_subjects=("订单{order}", "求助"),
    fillers=("这是送给妈妈的礼物。", "我附上了照片。", "电话{phone}。"),
    boilerplate=("感谢您的来信,编号{number}。",),
    forwards=("请看下面的邮件。",),
    quote_lines=("{name}于{date}写道:",),
    closings=("谢谢!", "{name}"),
)

_REVIEWS = ReviewWords(
    praise={
        "quality": ("质量很好。",),
        "delivery": ("发货很快。",),
        "price": ("价格便宜,很划算。",),
        "service": ("客服态度很好。",),
    },
    blame={
        "quality": ("用了{days}天就坏了,质量太差。",),
        "delivery": ("快递太慢,等了{days}天。",),
        "price": ("太贵了。",),
        "service": ("客服不理人。",),
    },
    shrug={
        "quality": ("质量一般。",),
        "delivery": ("快递一般。",),
        "price": ("价格一般。",),
        "service": ("客服一般。",),
    },
    verdicts={
        "positive": ("非常喜欢!", "推荐购买。"),
        "negative": ("不要买!", "太失望了。"),
        "neutral": ("还行吧。", "不好不坏。"),
    },
    sarcasm=("真是太棒了呢。",),
    fillers=("买来{use}用的。", "颜色比图片深一点。"),
    turns=("但是", "不过"),
)

LANGUAGE = Language("zh", _SLOTS, _TICKETS, _REVIEWS, spaced=False)

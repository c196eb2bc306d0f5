"""What is said in every corner of the market: ambiguous words, search habits, shop talk, the stuff of brand names.

AMBIGUOUS: a word, then its senses, the commonest first, each a product type (by its first name) and queries, with * for
the word, in which that sense is clear.
"""

from __future__ import annotations

AMBIGUOUS = """
throne: toilet = porcelain *, * toilet, how to fix a leaking * seat; armchair = velvet * chair, gothic * chair;
    strategy game = * strategy game pc, game like * of lies; fantasy novel = * of glass style books
jaguar: sports car = * car price, used * v8; electric guitar = * guitar, offset * guitar surf;
    soft toy = * stuffed animal, cuddly *; safari = * spotting tour
apple: fruit tree = * tree, dwarf * tree for pots, cooking * tree; smartphone = * phone, used * phone;
    cider = * cider dry; laptop = * laptop
python: programming book = * book, * book for beginners; programming course = learn * online, * data science course;
    terrarium = * enclosure, ball * tank
mouse: computer mouse = wireless *, usb * for laptop; mouse trap = * in loft, get rid of a * in the kitchen;
    cat toy = clockwork * for cats, catnip *
crane: toy digger = remote control *, * toy for 5 year old; crane operator course = * licence, tower * training;
    bird book = common * bird, * migration book
bass: bass guitar = * guitar for beginners, five string *; fishing lure = * lures, * fishing bait;
    subwoofer = car * box, more * for car
bat: cricket bat = willow * size 6, knocking in a *; baseball bat = aluminium * youth;
    bird book = identify a * in garden; soft toy = * plush toy
keyboard: computer keyboard = mechanical *, split * for typing; music keyboard = 61 key *, * with songs for kids
mustang: sports car = * v8 for sale, * gt; electric guitar = * guitar short scale; horse saddle = * saddle western
puma: trainer = * trainers retro; safari = * wildlife tour; soft toy = * stuffed animal
java: coffee beans = * coffee beans, * arabica dark roast; programming book = * programming book, learn * algorithms;
    hotel = hotels on * island
nail: nail polish = * colour gel, chip resistant * varnish; nail gun = framing * tool, second fix * gun
ring: engagement ring = diamond *, * for proposal; video doorbell = * doorbell, wireless * with camera;
    resistance band = * band workout
bow: archery bow = recurve *, hunting * 30lb; violin = violin *, * for fiddle
saddle: bike saddle = gel *, wide * for bike; horse saddle = pony *, western *
crib: cot = wooden *, bedside * for newborn; card game = * board game, * rules
tablet: tablet computer = 10 inch *, * for drawing; vitamin tablet = iron *, vitamin d * daily;
    dishwasher tablet = dishwasher * eco
monitor: computer monitor = 4k *, 27 inch * for gaming; baby monitor = video * for baby, * with movement sensor
tank: aquarium = tropical fish *, 60 litre *; terrarium = snake *, lizard *; t-shirt = * top, gym * top
pump: bike pump = track * for bike; water pump = pond *, submersible *; breast pump = wearable *, milk * hands free
sleeper: train ticket = * train, * to scotland; sleepsuit = baby *, footed * newborn;
    sofa bed = * sofa, * couch double
plane: flight = * tickets, cheap * to rome; hand plane = smoothing *, wood * no 4; toy digger = toy *
jack: hydraulic jack = trolley *, 3 tonne * for car; phone charger = headphone * adapter
mole: mole trap = * in lawn, get rid of * hills; face serum = dark spot and * cream; soft toy = * plush
trunk: suitcase = travel *, steamer * luggage; car boot liner = * mat, * liner for dogs;
    chest of drawers = storage * bedroom
charger: phone charger = usb *, 65w *; battery charger = car battery *, * for 12v battery; electric bike = ebike *
case: phone case = clear * for phone, shockproof *; suitcase = cabin *, hard * with wheels;
    wine glass = * of glasses; crime novel = detective * novels
pen: fountain pen = calligraphy *, ink *; ballpoint pen = box of * blue; dog bed = puppy *
drill: cordless drill = 18v *, hammer * sds; football boot = * training boots
rose: rose bush = climbing *, scented *; wedding band = * gold band; red wine = * wine case; perfume = * perfume
fiddle: violin = * for beginners, electric *; houseplant = * leaf fig
driver: impact driver = cordless * bits, screw *; golf club = golf *, * for slow swing;
    car insurance = young * cover, learner *
wedge: golf club = sand *, 56 degree *; sandal = * sandals, cork * heels
runner: running shoe = trail *, * for flat feet; rug = hallway *, washable * for stairs; treadmill = home * machine
shade: floor lamp = lamp * large, reading *; window blind = roller *, window * blackout; foundation = foundation *
iron: vitamin tablet = * supplement, * for anaemia; golf club = seven *, golf * set; frying pan = cast * pan
board: paddle board = inflatable *, sup * 10ft; snowboard = freestyle *, powder *; board game = * games for adults;
    whiteboard = dry erase *
court: court shoe = * heels, navy * shoes; trainer = * trainers white; badminton racket = back yard * set
amp: guitar amplifier = practice * guitar, valve * combo; amplifier = stereo *, phono * for vinyl
boot: hiking boot = waterproof walking *, alpine *; car boot liner = * liner rubber;
    football boot = moulded *, astro *; wellington boot = rain *
club: golf club = golf * set, hybrid *; dumbbell = strength * weights; hostel = party * hostel
note: notebook = * book lined, sticky * pad; smartphone = * phone large screen; planner = weekly * planner
cover: duvet cover = bed *, double * striped; phone case = * for phone, leather phone *;
    life insurance = life *, over 50 *; greenhouse = cold frame *
"""


def _split(text: str, at: str | None = None) -> tuple[str, ...]:
    return tuple(text.split(at))


# What people type for an attribute that shops call otherwise.
TYPED = {
    "men": "mens|gents|male",
    "women": "ladies|womens|female",
    "kids": "children|childrens",
    "toddlers": "little ones|2 year old",
    "beginners": "starter|novice|learners",
    "seniors": "elderly|pensioners",
    "students": "uni|college",
    "professionals": "trade|pro",
    "couples": "two people|romantic",
    "families": "family|with kids",
    "grey": "gray|silver coloured",
    "navy": "dark blue|midnight",
    "burgundy": "dark red|wine coloured",
    "beige": "cream|tan",
    "teal": "turquoise|blue green",
    "mustard": "yellow",
    "waterproof": "rainproof|water resistant",
    "lightweight": "light|ultra light",
    "cordless": "battery|rechargeable",
    "wireless": "cable free|no wires",
    "second hand": "used|pre owned",
    "refurbished": "renewed|reconditioned",
    "used": "second hand|pre owned",
    "heavy duty": "strong|industrial",
    "compact": "small|tiny",
    "folding": "collapsible|fold up",
    "foldable": "collapsible|fold up",
    "personalised": "custom|with name",
    "organic": "bio|chemical free",
    "vegan": "plant based|animal free",
    "stainless steel": "inox|metal",
    "adjustable": "variable|height adjustable",
    "hypoallergenic": "allergy friendly|sensitive",
    "luxury": "five star|high end",
    "budget": "low cost|inexpensive",
    "all inclusive": "everything included|full board",
    "last minute": "late deal|this weekend",
    "online": "remote|from home",
    "evergreen": "all year",
    "noise cancelling": "quiet|anc",
    "electric": "plug in",
    "comprehensive": "fully comp|full cover",
    "accredited": "certified|with certificate",
    "orthopaedic": "back support|posture",
    "king size": "5ft|large",
    "double": "4ft6|two person",
    "wooden": "wood|timber",
}
MODIFIERS = _split(
    "cheap {}|best {}|{} online|buy {}|{} sale|{} near me|{} 2026|best {} 2026|{} uk|{} deals|{} for sale|"
    "discount {}|{} price|affordable {}|good {}|top rated {}|{} offers|new {}|where to buy {}|{} next day delivery|"
    "luxury {}|{} under 100|{} clearance|quality {}|{} shop|compare {}|{} black friday|{} free delivery",
    "|",
)
RESEARCH = _split(
    "{} reviews|{} comparison|what is the best {}|{} worth it|{} buying guide|{} ideas|{} problems",
    "|",
)
TALK = _split(
    "Free delivery over £50.|30 day returns, no questions asked.|Order before 4 pm and we ship today.|"
    "Rated 4.8 out of 5 by our customers.|Pay in three instalments.|Family business since 1987.|"
    "Sign up to our newsletter for ten percent off.|Secure checkout and fast support.|"
    "Click and collect from 60 stores.|In stock and ready to ship.|Price match on everything we sell.|"
    "Chat with our experts seven days a week.|Gift cards available.|"
    "Compare prices, read reviews and find the offer that suits you.|Limited time offer.|"
    "Trusted by more than 200,000 people.|Earn points with every order.|"
    "Have a question? Our help pages have the answer.",
    "|",
)
SERVICES = ("flights", "hotels", "insurance", "money", "courses")
SERVICE_TALK = _split(
    "Book online in minutes.|No hidden fees.|Speak to an adviser seven days a week.|"
    "Rated excellent by 40,000 customers.|Cancel any time.|Compare quotes side by side.|"
    "Manage everything in our app.|Join two million members.|Best price promise.|Instant confirmation by email.|"
    "Award winning service.|Independent and free to use.",
    "|",
)
BRAND_HEADS = _split(
    "Nord Alt Bram Cald Dor Eld Fenn Gar Hal Ister Jor Kest Lum Mar Nov Ost Pell Quor Rav Sel Tor Ulv Vel Wex Yar "
    "Zan Ard Bel Cor Drey Eks Fal Gly Har Ign Jas Kor Lor Mer Nim Orr Pra Ros Stel Tav Umb Vor Wil Xan Zeph Ash Bry "
    "Cres Dun Em Fir Gre Hol Iv Kel Lin Mont Nar Ock Pin Riv Sil Tam Var Wyn",
)
BRAND_TAILS = _split(
    "vik ano ley bridge stead worth ella ora ine isto mark field haus berg era on ique ix ado ton wick mere ford "
    "gate lück etti land by forth well combe ance um ara lane ova ent ridge shaw aro esse olo",
)
LINES = _split(
    "Ridgeline Aurora Tempo Summit Harbour Breeze Pioneer Velocity Meadow Cascade Nomad Ember Comet Orchard Willow "
    "Atlas Drift Echo Fable Granite Halo Indigo Juniper Kestrel Lagoon Mirage Nimbus Opal Prism Quest Raven Sable "
    "Tundra Umbra Vista Whisper Yonder Zenith Acorn Birch Cobalt Delta Falcon Glide Heron Ivory Jasper Lark Maple "
    "Nova Oasis Pebble Quill Ripple Sierra Topaz Unity Valley Wander Anchor Bolt Canyon Dune Element Flare Grove "
    "Horizon Impulse Journey Karma Legend Motion Nectar Origin Pulse Quartz Rally Spirit Terra Urban Vertex Wave "
    "Apex Boreal Crest Dawn Essence Fusion Glacier Heritage Icon Jade Kindle Linden Monsoon Nordic Onyx Pacific "
    "Rapid Stellar Tango Uptown Vivid Zephyr",
)

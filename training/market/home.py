"""What the market sells, first half: things to wear, for the house, the family and the table.

The notation is read by `training.market.words`. A paragraph is a category: its name and shelf title, the nouns
that mean all of it, what people ask, what its shops say, `-` lines of attributes that exclude one another (a word and a
colon: how a query leads up to them), then product types with synonyms and uses. Types come in pairs that shoppers
compare. A noun with ! has no plural; *colour stands for the list of that name.
"""

from __future__ import annotations

HOME = """
@shoes | Shoes & Footwear | shoe, footwear!
? clean {}, stretch {}, stop {} from smelling
! free size exchange | true to size fit | breathable lining and a grippy outsole | sizes 36 to 48 in stock
- for: men, women, boys, girls, wide feet
- *colour
- leather, suede, vegan, waterproof, memory foam
running shoe, runner, jogging shoe: trail, road, marathon, cushioned, barefoot
trainer, sneaker: retro, high top, platform, slip on, chunky
hiking boot, walking boot, trekking boot: mid cut, lightweight, winter, alpine
wellington boot, welly, rain boot: short, festival, insulated, garden
ankle boot, chelsea boot: heeled, pull on, lace up, biker
sandal, flip flop: sliding, hiking, wedge, beach, orthopaedic
court shoe, stiletto, high heel: pointed, bridal, block heel, party
slipper, house shoe: sheepskin, moccasin, heated, closed back

@clothing | Clothing & Fashion | clothes!, fashion!, apparel!
? style {}, wash {}, choose the right size of {}
! free returns on every size | model wears size M | machine washable at 30 degrees | new styles every week
- for: men, women, teenagers, tall people, plus size
- *colour
- cotton, linen, wool, organic, recycled, fleece
rain jacket, waterproof jacket, cagoule: packable, hooded, hiking, cycling
down jacket, puffer jacket, padded coat: lightweight, longline, arctic, cropped
jeans!, denim trousers!: skinny, bootcut, straight leg, ripped, high waisted
chinos!, casual trousers!: slim fit, pleated, stretch, tapered
t-shirt, tee: graphic, v neck, oversized, long sleeve, band
sweatshirt, hoodie, jumper: zip up, crew neck, cable knit, half zip
summer dress, sundress: floral, maxi, midi, beach, wrap
evening gown, ball gown, prom dress: sequin, strapless, backless, velvet
swimsuit, bathing suit, swimming costume: one piece, tummy control, racing, high leg
pyjamas!, nightwear!, sleepwear!: satin, flannel, short sleeve, matching family

@jewellery | Jewellery & Watches | jewellery!, jewelry!
? clean {}, measure for {}, insure {}
! hallmarked and gift boxed | free engraving | lifetime polish service | certificate of authenticity
- for: men, women, bridesmaids, couples
- gold, silver, rose gold, platinum, titanium
- vintage, minimalist, personalised, art deco
engagement ring, diamond ring: solitaire, halo, princess cut, emerald, sapphire
wedding band, wedding ring: hammered, brushed, matching, eternity
necklace, pendant, chain necklace: initial, pearl, layered, locket, birthstone
bracelet, bangle: charm, tennis, beaded, cuff, friendship
earrings!, ear studs!: hoop, drop, pearl cluster, hypoallergenic
body jewellery!, nose stud, belly bar: surgical steel, threadless, opal
wristwatch, dress watch: automatic, chronograph, skeleton, moon phase
diving watch, sports watch: 200m, solar, tactical, digital

@bags | Bags & Luggage | bag, luggage!
? pack {}, clean {}, repair the zip of {}
! fits the cabin limits of most airlines | five year warranty on zips and wheels | lockable and lightweight
- for: men, women, school, work, weekend trips
- *colour
- leather, canvas, nylon, ripstop, hard shell
suitcase, trolley case, rolling luggage!: cabin, expandable, four wheel, 28 inch
holdall, duffel bag, travel bag: wheeled, foldable, overnight, sports
backpack, rucksack: hiking, anti theft, laptop, 40 litre, roll top
satchel, messenger bag: cross body, vintage, document, cycling
handbag, purse: quilted, clutch, top handle, evening, bucket
tote bag, shopper bag: foldable, printed, beach, insulated
wallet, billfold: slim, rfid, zip around, money clip
belt bag, bum bag, fanny pack: running, festival, expandable

@cosmetics | Beauty & Cosmetics | cosmetics!, make up!, beauty products!
? apply {}, choose {}, store {}
! dermatologically tested | free samples with every order | cruelty free and kind to skin | shade finder online
- for: sensitive skin, dry skin, oily skin, mature skin, men
- vegan, organic, fragrance free, hypoallergenic, spf 30
- travel size, gift set, refill, value pack
lipstick, lip colour!: matte, long lasting, nude, red, plumping
nail polish!, nail varnish!: gel, quick dry, chip resistant, glitter
foundation, face base: full coverage, stick, cushion, dewy
mascara, lash tint: volumising, waterproof, tubing, brown
moisturiser, face cream: hydrating, night, tinted, anti ageing, barrier repair
face serum, skin serum: vitamin c, retinol, hyaluronic, niacinamide
shampoo, hair wash!: anti dandruff, clarifying, volumising, purple
hair dye!, hair colour!: semi permanent, ash blonde, copper, grey coverage
perfume, eau de parfum!, fragrance: floral, woody, citrus, oud
electric shaver, razor, beard trimmer: wet and dry, foil, cordless, body

@furniture | Furniture & Living | furniture!
? assemble {}, clean {}, get scratches out of {}
! free swatches by post | delivered to the room of your choice | ten year frame guarantee | old piece taken away
- *colour
- oak, walnut, velvet, rattan, leather, metal
- scandinavian, mid century, industrial, rustic
- for: small spaces, living rooms, conservatories, offices
sofa, couch, settee: corner, three seater, reclining, modular
sofa bed, futon, pull out couch: double, click clack, single, storage
armchair, easy chair: wingback, swivel, tub, rocking
office chair, desk chair: ergonomic, mesh, high back, kneeling
dining table, kitchen table: extending, round, six seater, drop leaf
coffee table, side table: nesting, lift top, glass, marble
bookcase, bookshelf: corner, ladder, tall, cube
wardrobe, armoire: sliding door, mirrored, fitted, two door
chest of drawers!, dresser: tall, wide, five drawer, slim
standing desk, sit stand desk: electric, corner, compact, dual motor

@bedding | Beds & Bedding | bedding!, bedroom textiles!
? wash {}, choose {}, get stains out of {}
! sleep on it for 100 nights | oeko-tex certified | softer with every wash | fits deep mattresses
- single, double, king size, super king
- for: side sleepers, hot sleepers, children, allergy sufferers
- cotton, bamboo, linen, silk, wool
duvet, comforter, quilt: winter, 10.5 tog, all season, weighted
duvet cover, bed linen!: striped, seersucker, button, botanical
mattress, bed mattress: memory foam, pocket sprung, orthopaedic, hybrid
mattress topper, bed topper: cooling, gel, egg crate, heated
pillow, head pillow: contour, down, body, neck support
bed sheet, fitted sheet: deep pocket, flannel, percale, sateen
bed frame, bedstead: ottoman, four poster, upholstered, floating
blanket, throw, bed spread: electric, chunky knit, sherpa, picnic

@bathroom | Bathrooms & Fittings | bathroom fittings!, sanitary ware!, bathroom suite
? fix leaking {}, fit {a}, unblock {a}, descale {a}
! fixings and seals included | ten year guarantee against leaks | water saving design | trade prices for everyone
- white, chrome, matt black, brushed brass, grey
- modern, traditional, compact, disabled access
- for: small bathrooms, cloakrooms, en suites, hotels
toilet, wc!, lavatory: close coupled, wall hung, rimless, dual flush
toilet seat, loo seat, toilet lid: soft close, wooden, heated, raised
basin, wash basin, bathroom sink: countertop, pedestal, corner, semi recessed
bathroom tap, basin mixer, bathroom faucet: waterfall, wall mounted, tall, sensor
bathtub, bath, soaking tub: freestanding, roll top, corner, walk in
shower, shower set: electric, thermostatic, rainfall, digital
shower screen, shower enclosure, shower door: sliding, pivot, frameless, quadrant
bathroom cabinet, vanity unit: mirrored, under sink, led, slimline
towel rail, heated towel rack: ladder, dual fuel, electric, freestanding
plunger, drain unblocker: heavy duty, sink, accordion, power

@appliances | Kitchen Appliances | kitchen appliance, white goods!
? repair {a}, clean {a}, choose {a}
! energy label on every model | two year parts and labour | recycling of your old appliance | next day installation
- stainless steel, black, white, cream, red
- compact, family size, integrated, smart
- for: caravans, large families, small kitchens, cafes
coffee machine, espresso maker: bean to cup, pod, filter, dual boiler
kettle, electric teapot: gooseneck, glass, quiet, temperature control
blender, smoothie maker: personal, high speed, hand, soup
stand mixer, food mixer: tilt head, 5 litre, bowl lift, dough
air fryer, health fryer: dual zone, xxl, oven style, digital
microwave, microwave oven: combination, flatbed, solo, 800w
fridge freezer, refrigerator: frost free, american style, retro, 50 50
dishwasher, dish washing machine: slimline, table top, 14 place, quiet
washing machine, washer: 9kg, 1400 spin, quick wash, front loading
tumble dryer, clothes dryer: heat pump, vented, condenser, 8kg
vacuum cleaner, hoover: cordless, bagless, robot, pet hair

@cookware | Cookware & Tableware | cookware!, kitchenware!
? season {}, sharpen {}, clean burnt {}
! works on induction | oven safe to 240 degrees | dishwasher safe | lifetime warranty against warping
- stainless steel, cast iron, copper, ceramic, non stick
- for: induction hobs, camping, beginners, professional kitchens
- *colour
frying pan, skillet: 28cm, deep, omelette, with lid
saucepan, cooking pot: milk, 3 piece, pasta, small
casserole dish, dutch oven: oval, round, shallow, 6 litre
baking tray, oven tin: loaf, muffin, springform, rectangular
chef knife, kitchen knife: damascus, santoku, bread, paring
knife block, knife holder: magnetic, acacia, in drawer, rotating
dinner set, crockery set, dinnerware!: stoneware, 16 piece, porcelain, speckled
wine glass, stemware!: crystal, stemless, champagne, red wine
lunch box, bento box: insulated, leakproof, divided, kids
storage jar, food container: airtight, clip top, stackable, spice

@lighting | Lighting & Lamps | lighting!, lights!
? wire {a}, hang {a}, choose {a}
! warm white led included | ip44 rated for bathrooms | dims smoothly | designed and finished by hand
- brass, black, copper, chrome, wicker, white
- dimmable, smart, solar, battery powered
- for: bedrooms, hallways, kitchens, gardens
pendant light, ceiling pendant: cluster, dome, glass, paper
chandelier, ceiling light: crystal, candle, antler, semi flush
table lamp, bedside lamp: touch, ceramic, mushroom, mini
floor lamp, standard lamp: arc, tripod, reading, tall
desk lamp, study lamp: clip on, wireless charging, adjustable, magnifying
fairy lights!, string lights!: curtain, outdoor, globe, warm white
light bulb, led bulb: e27, gu10, filament, daylight
security light, floodlight: motion sensor, 50w, twin, pir

@garden | Garden & Outdoor Living | garden tool, gardening equipment!
? sharpen {}, start {a}, store {} over winter
! rust proof and built to last | spare parts kept for ten years | delivered on a pallet to your drive
- cordless, petrol, electric, manual
- for: small gardens, allotments, professionals, left handers
- heavy duty, lightweight, folding, telescopic
lawn mower, grass cutter: self propelled, robotic, ride on, hover
grass trimmer, strimmer, weed whacker: brush cutter, bump feed, wheeled
hedge trimmer, hedge cutter: long reach, pole, double sided, 60cm
secateurs!, pruning shears!, garden scissors!: bypass, anvil, ratchet, bonsai
spade, digging spade, garden shovel: border, stainless, drainage, trenching
garden fork, pitchfork: digging, compost, hand, border
garden hose, hosepipe: expandable, 30m, soaker, reel
water pump, pond pump: submersible, borehole, fountain, dirty water
greenhouse, polytunnel: lean to, polycarbonate, walk in, mini
garden shed, tool shed: overlap, bike, plastic, apex

@plants | Plants & Seeds | plant, garden plant
? grow {}, prune {}, repot {}
! grown on our own nursery | arrives in letterbox friendly packs | five year plant guarantee
- for: shade, full sun, pots, clay soil, beginners
- evergreen, hardy, dwarf, fast growing, organic
- bare root, potted, plug, mature
fruit tree, orchard tree: cherry, pear, plum, self fertile, cooking
rose bush, garden rose: climbing, rambling, scented, standard
houseplant, indoor plant: trailing, air purifying, low light, pet safe
succulent, cactus plant: mixed, flowering, hanging, tiny
vegetable seed, veg seed: tomato, runner bean, heirloom, chilli
wildflower seed, meadow seed: bee friendly, annual, perennial, native
hedge plant, hedging!: privet, laurel, hawthorn, native
flower bulb, spring bulb: tulip, daffodil, crocus, allium

@tools | DIY & Power Tools | power tool, diy tools!
? use {a}, choose {a}, charge {a}
! three year warranty when registered | bare unit or with two batteries | repair service within five days
- 12v, 18v, 36v, 240v, air powered
- for: masonry, wood, metal, beginners, the trade
- brushless, compact, heavy duty, with case
cordless drill, power drill: combi, hammer, right angle, sds
impact driver, electric screwdriver: quarter inch, high torque, pistol, precision
circular saw, skill saw: plunge, mini, 190mm, track
jigsaw, scroll saw: orbital, barrel grip, variable speed
nail gun, nailer, staple gun: brad, framing, finishing, second fix
sander, belt sander: orbital, detail, palm, drywall
hand plane, block plane, wood planer: smoothing, low angle, no 4, rebate
spanner set, socket set, wrench set: ratchet, torque, metric, 94 piece
ladder, step ladder: telescopic, loft, multi purpose, three step
hydraulic jack, trolley jack, lifting jack: low profile, 3 tonne, bottle, scissor

@decorating | Paint & Decorating | decorating supplies!, home decor!
? paint {}, hang {}, remove old {}
! one coat coverage | low odour and quick drying | order a tester first | calculated to the square metre
- white, sage green, navy, dusky pink, charcoal, cream
- eco, premium, trade, made to measure
- for: kitchens, nurseries, bedrooms, hallways, rented flats
wall paint, emulsion!: matt, chalk, one coat, anti mould, silk
wood stain, wood varnish!: decking, teak, interior, water based
wallpaper, wall covering: floral, geometric, textured, peel and stick
wall sticker, wall decal: dinosaur, tree, quote, world map
curtain, drape: blackout, eyelet, thermal, pencil pleat
window blind, roller blind: venetian, roman, day and night, no drill
rug, area rug, carpet: shaggy, runner, washable, persian
laminate flooring!, vinyl flooring!: herringbone, click, stone effect, 12mm
tile, wall tile: metro, mosaic, terrazzo, hexagon
mirror, wall mirror: round, arched, full length, sunburst

@baby | Baby & Nursery | baby gear!, nursery products!
? clean {a}, fold {a}, choose {a}
! tested to the latest safety standard | gentle on newborn skin | gift list available | washable covers
- for: newborns, twins, toddlers, travel
- grey, mint, blush, natural, navy
- organic, foldable, convertible, lightweight
pram, pushchair, stroller, buggy: double, running, travel system, compact
car seat, child car seat: group 1, rotating, rear facing, i-size
cot, baby bed, crib: bedside, wooden, sleigh, drop side
moses basket, bassinet: rocking, wicker, portable, next to me
nappy, diaper: reusable, size 4, swim, overnight
baby bottle, feeding bottle: anti colic, glass, 260ml, self sterilising
breast pump, milk pump: wearable, double electric, silicone, hospital grade
high chair, feeding chair: adjustable, clip on, grow with me, reclining
baby monitor, baby camera: video, wifi, movement, two way audio
sleepsuit, babygrow, romper: zip, long sleeve, footed, bamboo

@toys | Toys & Board Games | toy, kids toy
? clean {}, store {}, play with {}
! tested for ages three and up | gift wrapping for a small fee | batteries included | loved by nurseries
- for: toddlers, boys, girls, 5 year olds, 8 year olds, adults
- wooden, plastic free, educational, glow in the dark
- mini, giant, deluxe, starter
building blocks!, construction set: magnetic, castle, space, city
toy digger, toy truck, toy crane: remote control, dumper, ride on, die cast
soft toy, plush animal, stuffed animal: dinosaur, big cat, unicorn, bear
doll, dolls house: baby, fashion, rag, victorian
jigsaw puzzle, puzzle: 1000 piece, 3d, floor, landscape
board game, family game: cooperative, strategy, trivia, two player
card game, playing cards!: party, trading, snap, cribbage
train set, toy railway: electric, steam, battery, expansion
scooter, kick scooter: three wheel, light up, stunt, folding
trampoline, bouncy castle: 10ft, with net, rectangular, indoor

@pets | Pet Supplies | pet supplies!, pet products!
? clean {a}, choose {a}, train a pet with {a}
! vet approved | autoship and save ten percent | delivered to your door | no artificial colours
- for: large pets, young pets, senior pets, travel, small spaces
- grain free, chew proof, washable, natural
- small, medium, large, bulk buy
dog food!, puppy food!: dry, wet, raw, hypoallergenic
cat food!, kitten food!: pouches, salmon, sterilised, biscuits
dog bed, pet bed: orthopaedic, raised, donut, cooling
dog lead, dog harness: retractable, no pull, reflective, rope
cat toy, kitten toy: feather wand, catnip, laser, clockwork
scratching post, cat tree: tall, sisal, wall mounted, cardboard
aquarium, fish tank: tropical, nano, 60 litre, marine
terrarium, reptile tank, vivarium: glass, snake, desert, bioactive
bird feeder, bird table: squirrel proof, window, hanging, seed
horse saddle, riding saddle: dressage, western, jumping, pony
"""

"""What the market sells, second half: electronics, leisure, travel, money and services (notation: `market_home`)."""

from __future__ import annotations

LEISURE = """
@computers | Computers & Accessories | computer, pc
? speed up {a}, clean {a}, choose {a}, connect {a}
! configured and tested in house | student discount | three year on site warranty | trade in your old one
- black, silver, white, space grey
- for: students, gaming, video editing, business, home working
- refurbished, silent, wireless, rgb, ultra thin
laptop, notebook computer: touchscreen, 14 inch, 17 inch, convertible, 16gb, 32gb
desktop computer, desktop pc, tower pc: mini, all in one, water cooled, 32gb, 1tb
tablet computer, android tablet: 10 inch, rugged, drawing, kids
e-reader, ebook reader: waterproof, colour, 7 inch, backlit
computer monitor, pc screen, computer display: 27 inch, 4k, curved, ultrawide
graphics card, video card, gpu: 12gb, low profile, dual fan, overclocked
computer mouse, gaming mouse: ergonomic, vertical, left handed, bluetooth
computer keyboard, mechanical keyboard: tenkeyless, hot swap, split, compact
printer, inkjet printer: laser, photo, a3, all in one
external hard drive, portable ssd, usb drive: 2tb, encrypted, nvme, rugged
router, wifi router, mesh wifi!: wifi 6, dual band, 5g, travel

@phones | Phones & Wearables | phone accessories!, mobile accessories!
? reset {a}, clean {a}, choose {a}
! unlocked to all networks | sim free and ready to go | screen protector included | twelve month warranty
- black, silver, lavender, forest green, gold
- for: seniors, kids, runners, builders, travellers
- refurbished, waterproof, dual sim, magnetic, eco
smartphone, mobile phone, cell phone: 5g, 128gb, large screen, folding
flip phone, big button phone: basic, emergency, loud, 4g
phone case, phone cover: clear, wallet, shockproof, leather
screen protector, tempered glass!: privacy, matte, curved, twin pack
phone charger, usb charger: fast, 65w, wireless, car
power bank, portable charger: 20000mah, slim, solar, laptop
smartwatch, fitness tracker: gps, heart rate, sleep, swim
wireless earbuds!, earphones!: noise cancelling, sports, open ear, in ear
video doorbell, smart doorbell: battery, wired, 2k, with chime

@audio | TV & Audio | home entertainment!, hi-fi!
? set up {a}, mount {a}, connect {a} to tv
! price match promise | wall mounting service | five year guarantee | demonstration rooms in store
- black, white, walnut, silver
- for: parties, small rooms, vinyl, home cinema, the office
- bluetooth, wireless, portable, refurbished, smart
television, tv, flat screen tv: 55 inch, oled, 4k, 32 inch
projector, home cinema projector: short throw, mini, 1080p, laser
soundbar, tv speaker: with subwoofer, dolby, compact, 5.1
subwoofer, woofer: 12 inch, active, under seat, car
headphones!, over ear headphones!: noise cancelling, studio, open back, foldable
loudspeaker, hi-fi speaker: bookshelf, floorstanding, outdoor, party
record player, turntable: belt drive, suitcase, direct drive, usb
amplifier, stereo amp: valve, class d, integrated, phono

@cameras | Cameras & Optics | camera equipment!, photography gear!
? clean {a}, hold {a} steady, choose {a}
! sensor checked by our workshop | part exchange welcome | free photography guide
- for: beginners, vlogging, wildlife, travel, weddings
- used, compact, weather sealed, carbon fibre
- black, silver, olive
mirrorless camera, digital camera: full frame, aps-c, 4k, 24mp
instant camera, film camera: 35mm, disposable, square, vintage
camera lens, zoom lens: macro, wide angle, telephoto, 50mm
tripod, camera stand: panoramic, gorilla, heavy, tabletop
drone, quadcopter: foldable, mini, fpv, with camera
action camera, helmet camera: waterproof, 360, 5k, motorbike
binoculars!, field glasses!: 10x42, 8x32, night vision, zoom
telescope, astronomical telescope: refractor, reflector, computerised, kids

@instruments | Musical Instruments | musical instrument
? tune {a}, learn {a}, clean {a}
! set up by our luthier before it ships | try it at home for 45 days | free online lessons | gig bag included
- for: beginners, kids, left handers, stage, studio
- sunburst, black, natural, seafoam green, cherry red
- used, limited edition, student, professional
electric guitar, solid body guitar: offset, semi hollow, seven string, short scale
acoustic guitar, folk guitar: dreadnought, parlour, twelve string, electro
bass guitar, electric bass: five string, fretless, active, short scale
guitar amplifier, guitar amp: valve, practice, combo, modelling
digital piano, electric piano: 88 key, weighted, slim, upright
music keyboard, synthesizer, synth: 61 key, analogue, workstation, portable
drum kit, drum set: electronic, junior, mesh head, jazz
violin, fiddle: 4/4, 3/4, electric, silent
saxophone, alto sax: tenor, soprano, lacquered, curved
ukulele, uke: concert, tenor, soprano, electro
microphone, studio mic: condenser, usb, dynamic, lavalier

@bikes | Bikes & Cycling | bicycle, bike, cycling gear!
? adjust {a}, fix {a}, choose {a}
! built and tuned by a mechanic | cycle to work scheme | free first service | find your size online
- for: men, women, kids, commuters, beginners
- carbon, aluminium, steel, titanium
- matt black, red, teal, orange, white
mountain bike, mtb: full suspension, hardtail, 29er, enduro
road bike, racing bike: aero, endurance, disc brake, lightweight
electric bike, e-bike: folding, step through, cargo, mid drive
hybrid bike, city bike: dutch style, eight speed, trekking, belt drive
bike helmet, cycle helmet: mips, full face, urban, led
bike saddle, bicycle seat: gel, wide, cut out, sprung
bike pump, tyre inflator, floor pump: track, mini, shock, digital
bike light, cycle light: usb rechargeable, rear, 1000 lumen, set
bike lock, cycle lock: d lock, folding, chain, gold rated
bike rack, car bike carrier: towbar, roof, boot, four bike

@fitness | Fitness & Gym | fitness equipment!, gym gear!
? use {a}, clean {a}, lose weight with {a}
! delivered and assembled | commercial grade frame | app with 200 workouts | interest free credit
- for: home, beginners, seniors, small spaces, rehab
- folding, adjustable, heavy duty, compact
- black, pink, grey, purple
treadmill, running machine: motorised, walking pad, incline, curved
exercise bike, spin bike: recumbent, magnetic, under desk, air
rowing machine, rower: water, magnetic, air, hydraulic
dumbbell, hand weight: hex, neoprene, 20kg, pair
kettlebell, kettle weight: cast iron, 16kg, competition, vinyl
weight bench, workout bench: incline, flat, with rack, preacher
yoga mat, exercise mat: thick, cork, travel, alignment
resistance band, exercise band: loop, fabric, long, door anchor
protein powder!, whey protein!: chocolate, vegan, isolate, vanilla
vitamin tablet, multivitamin, supplement: vitamin d, magnesium, omega 3, iron

@outdoors | Camping & Fishing | camping gear!, outdoor gear!
? repair {a}, pitch {a}, clean {a}, store {a}
! tested on the hills | spare parts for every model | packs down small | members save ten percent
- for: families, two people, wild camping, festivals, beginners
- ultralight, waterproof, four season, insulated
- green, orange, camo, sand
tent, camping tent: pop up, inflatable, tunnel, 4 man
sleeping bag, mummy bag: down, double, -10, kids
camping stove, gas stove: single burner, wood, multi fuel, backpacking
cool box, camping cooler: electric, 40 litre, wheeled, soft
head torch, flashlight, headlamp: rechargeable, red light, 1000 lumen, running
camping chair, folding chair: reclining, low, with cup holder, rocking
fishing rod, fishing pole: carp, fly, spinning, telescopic
fishing lure, fishing bait: soft, spinner, topwater, crankbait
kayak, canoe: inflatable, sit on top, two seat, folding
paddle board, sup board: 10ft, all round, touring, with seat
archery bow, recurve bow: compound, longbow, takedown, 30lb

@sports | Team & Racket Sports | sports equipment!, sports gear!
? choose {a}, clean {a}, break in {a}
! used by clubs across the country | team discount from ten pieces | personalised with name and number
- for: juniors, men, women, beginners, clubs
- size 3, size 4, size 5, full size
- match, training, indoor, elite
football boot, soccer cleat: firm ground, astro, moulded, studded
football, soccer ball: hand stitched, futsal, mini, glow
cricket bat: english willow, kashmir, long handle, junior
baseball bat, softball bat: aluminium, maple, fungo, youth
tennis racket, tennis racquet: graphite, 27 inch, oversize, light
badminton racket, badminton set: carbon, four player, garden, strung
golf club, golf iron: driver, wedge, putter, hybrid
golf bag, golf trolley: stand, cart, electric, waterproof
ski, alpine skis!: carving, freeride, touring, all mountain
snowboard, splitboard: freestyle, camber, wide, powder
boxing glove, sparring glove: 12oz, leather, bag, kickboxing

@cars | Cars & Car Parts | car, motor parts!
? change {a}, check {a}, choose {a}
! fitted at 500 garages | fits or your money back | full service history | enter your registration to check
- for: families, off road, commuting, towing, long trips
- budget, premium, nearly new, trade
used car, second hand car, approved used car: convertible, estate, low mileage, automatic, diesel, hybrid
sports car, coupe, muscle car: v8, two seater, supercharged, classic, electric
car tyre, tire: winter, all season, run flat, 205 55 r16
alloy wheel, car rim: 18 inch, 5x112, diamond cut, forged
car battery, vehicle battery: 12v, agm, start stop, 70ah
battery charger, jump starter, trickle charger: portable, smart, lithium, 6v
dash cam, dashboard camera: dual, 4k, parking, gps
roof box, roof rack: 400 litre, aluminium bars, kayak, folding
engine oil!, motor oil!: 5w30, fully synthetic, 10w40, long life
car boot liner, trunk mat: rubber, tailored, quilted, dog

@books | Books & Audiobooks | book
? publish {a}, choose {a}, sell {}
! look inside before you buy | signed copies while stocks last | free postage on two or more
- paperback, hardback, audiobook, ebook, large print
- for: beginners, children, teenagers, book clubs, students
- bestselling, illustrated, second hand, boxed set
crime novel, thriller, detective novel: scandinavian, cosy, noir, historical
fantasy novel, fantasy saga: epic, young adult, dragon, dark
science fiction novel, sci-fi book: dystopian, space opera, cyberpunk, classic
romance novel, love story: regency, enemies to lovers, holiday, small town
programming book, coding book, computer science textbook: data science, web, algorithms, machine learning
maths textbook, study guide: gcse, a level, calculus, statistics
cookbook, recipe book: vegetarian, italian, one pot, baking
travel guide, guide book: city break, road trip, pocket, island
bird book, wildlife guide, nature book: field, british, garden, photographic
picture book, bedtime story: animals, rhyming, lift the flap, counting

@games | Video Games & Consoles | video game, computer game
? finish {a}, install {a}, trade in {a}
! instant download code | pre-order bonus | region free | earn points on every order
- for: two players, kids, switch, xbox, playstation, pc
- deluxe edition, pre order, second hand, digital download
- retro, online, offline, vr
strategy game, real time strategy game: medieval, empire, turn based, space
role playing game, rpg: open world, fantasy, japanese, action
racing game, driving game: rally, kart, simulator, street
shooter game, first person shooter: tactical, battle royale, zombie, world war
puzzle game, platform game: pixel art, cosy, logic, co-op
farming game, simulation game: city builder, train, theme park, survival
games console, gaming console: handheld, 1tb, bundle, mini
game controller, gamepad, joystick: wireless, pro, flight, arcade
gaming chair, gamer chair: reclining, with speakers, footrest, fabric
gaming headset, headset: surround, 7.1, with mic, light

@stationery | Office & Stationery | stationery!, office supplies!
? refill {a}, choose {a}, recycle {}
! printed in 48 hours | next day for orders before five | vat receipt with every order
- for: school, left handers, offices, artists, teachers
- a4, a5, pocket size, a3
- black, pastel, navy, assorted, kraft
fountain pen, ink pen: fine nib, calligraphy, refillable, gift
ballpoint pen, gel pen, biro: retractable, erasable, 0.5mm, box of 50
notebook, journal: dotted, hardback, lined, leather
planner, diary: 2026, undated, academic, weekly
marker pen, highlighter: dual tip, alcohol, whiteboard, chalk
desk organiser, pen holder: bamboo, mesh, drawer, rotating
paper shredder, document shredder: cross cut, micro cut, quiet, 20 sheet
whiteboard, dry erase board: magnetic, mobile, glass, gridded

@food | Food & Drink | groceries!, gourmet food!
? store {}, serve {}, make {}
! roasted and packed to order | subscribe and save | plastic free packaging | straight from the grower
- organic, fair trade, gluten free, vegan, decaf
- for: gifts, offices, cafes, parties
- 250g, 1kg, 12 pack, sample box
coffee beans!, ground coffee!, whole bean coffee!: espresso, single origin, dark roast, arabica
tea!, loose leaf tea!, tea bags!: green, earl grey, herbal, chai
red wine, wine case: merlot, rioja, mixed, vintage
cider, craft beer, pale ale: dry, cloudy, low alcohol, ipa
chocolate box, truffles!: dark, salted caramel, praline, sugar free
hamper, gift basket: christmas, cheese, afternoon tea, luxury
olive oil!, cooking oil!: extra virgin, cold pressed, infused, tin
protein bar, snack bar: nut, date, peanut, low sugar
dishwasher tablet, washing up liquid!: all in one, eco, lemon, 100 pack

@pest | Cleaning & Pest Control | cleaning supplies!, pest control products!
? use {a}, choose {a}, clean {a}
! safe around children and pets when used as directed | used by professionals | works overnight
- for: kitchens, lofts, gardens, warehouses
- humane, non toxic, electronic, heavy duty
- twin pack, refill, starter kit, bulk
mouse trap, rat trap, rodent trap: live, snap, multi catch, enclosed
mole trap, mole repeller: tunnel, solar, ultrasonic, claw
ant killer, insect spray: gel, bait station, powder, indoor
fly screen, mosquito net: magnetic, door, window, travel
carpet cleaner, steam cleaner: handheld, upholstery, pet, rental
mop, floor mop: spin, microfibre, flat, spray

@flights | Flights & Transport | air travel!, transport!
? find {}, change {}, get a refund on {}
! no booking fees | price alerts by email | hold your fare for 24 hours | carry-on included
- to: lisbon, rome, new york, tokyo, bangkok, dubai, reykjavik, athens, cape town, sydney, oslo, malaga
- from: london, manchester, dublin, berlin, boston
- last minute, direct, one way, return, flexible
flight, plane ticket, air ticket: business class, economy, overnight, low cost
train ticket, rail ticket: sleeper, first class, advance, high speed
ferry ticket, ferry crossing: car, foot passenger, overnight cabin, mini cruise
coach ticket, bus ticket: night, airport, open return, day
rental car, car hire!: automatic, one way drop, suv, minibus
airport transfer, airport taxi: private, shared, executive, minibus
airport parking!, airport car park: meet and greet, long stay, on site, covered
travel sim, esim: 10gb, unlimited, regional, 30 day

@hotels | Hotels & Holidays | holiday, vacation
? book {a}, cancel {a}, pack for {a}
! free cancellation up to 24 hours | over 3,000 verified reviews | breakfast included | pay at the property
- in: lisbon, rome, paris, tenerife, cornwall, bali, crete, edinburgh, iceland, florida, prague, kenya
- for: families, couples, dog owners, groups, over 60s
- luxury, budget, all inclusive, adults only, last minute
hotel, hotel room: boutique, spa, airport, beachfront
hostel, backpacker hostel: dorm, party, female only, city centre
holiday cottage, self catering cottage: hot tub, thatched, seaside, log fire
apartment rental, holiday flat: two bedroom, sea view, serviced, old town
beach holiday, package holiday: half board, half term, winter sun, week
cruise, boat trip: river, transatlantic, fjord, mini
safari, wildlife tour: big cat, walking, photo, self drive
theme park ticket, zoo ticket: annual pass, group, two day, fast track

@insurance | Insurance | insurance!, insurance cover!
? cancel {}, compare {}, claim on {}
! quote in two minutes | authorised and regulated | 24 hour claims line | spread the cost monthly
- for: students, seniors, young drivers, families, landlords, self employed
- comprehensive, third party, low excess, monthly
- annual, short term, temporary, multi
car insurance!, motor insurance!, auto insurance!: black box, classic, learner, convicted driver
van insurance!, fleet insurance!: business use, courier, camper, any driver
home insurance!, house insurance!, contents insurance!: buildings, holiday let, flood, renters
landlord insurance!, buy to let insurance!: rent guarantee, hmo, unoccupied, portfolio
travel insurance!, holiday insurance!: winter sports, worldwide, single trip, medical
pet insurance!, dog insurance!: lifetime, puppy, older dogs, exotic
life insurance!, life cover!: over 50, joint, term, no medical
health insurance!, medical insurance!: private, dental, outpatient, expat

@money | Loans & Banking | finance!, banking!
? apply for {a}, compare {}, switch {a}
! representative example shown | decision in principle online | no early repayment fee | protected deposits
- for: bad credit, first time buyers, students, small business, expats
- fixed rate, interest free, low rate, no fee, instant
- online, joint, 12 month, 5 year
mortgage, home loan: remortgage, buy to let, tracker, 95 percent
personal loan, unsecured loan: debt consolidation, home improvement, short term, guarantor
credit card, charge card: balance transfer, cashback, airline miles, purchase
current account, bank account: switch bonus, packaged, multi currency, basic
savings account, cash isa: easy access, notice, regular, junior
pension, retirement plan: self invested, workplace, drawdown, annuity
gold bullion!, gold coins!, silver coins!: sovereign, 1oz bar, britannia, allocated
tax software!, accounting software!, bookkeeping software!: self assessment, vat, payroll, landlord

@courses | Courses & Lessons | course, training!, lessons!
? pass {a}, pay for {a}, choose {a}
! learn at your own pace | certificate on completion | taught in small groups | first lesson free
- for: beginners, adults, teenagers, professionals, career changers
- online, evening, weekend, intensive, free
- accredited, one to one, part time, self paced
programming course, coding course, coding bootcamp: python, data science, full stack, machine learning, web
excel course, spreadsheet course: advanced, dashboard, finance, macro
language course, language lesson, language class: spanish, french, conversational, japanese, business
music lesson, music class: piano, guitar, singing, jazz, grade 1, theory
driving lesson, driving course: automatic, refresher, motorway, crash
first aid course, safety course: paediatric, workplace, refresher, outdoor
yoga class, pilates class: hot, pregnancy, reformer, vinyasa
crane operator course, forklift course, plant operator course: slinger, telehandler, tower, excavator
"""
